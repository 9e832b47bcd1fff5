# The stressors of files, each for some seconds, with their own checks.
for stressor in hdd aio copy-file dentry dir dirdeep fallocate fiemap filename flock fpunch getdent hdd iomix link lockf \
    metamix mknod open readahead rename seek sync-file symlink touch utime xattr; do
    # Versions differ in their stressors.
    help=$(stress-ng --help 2>&1)
    case "$help" in *"--$stressor N"*) ;; *) continue ;; esac
    # By default, some of them need more space than the volume has.
    case "$help" in *"--$stressor-bytes N"*) bytes="--$stressor-bytes 128m" ;; *) bytes= ;; esac
    stress-ng --temp-path . --"$stressor" 2 $bytes --timeout 4 --verify --quiet
done
