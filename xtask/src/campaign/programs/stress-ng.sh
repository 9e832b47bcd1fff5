# The stressors of files, each for some seconds, with their own checks.
for stressor in hdd aio copy-file dentry dir dirdeep fallocate fiemap filename flock fpunch getdent hdd iomix link lockf \
    metamix mknod open readahead rename seek sync-file symlink touch utime xattr; do
    # Versions differ in their stressors.
    stress-ng --help 2>&1 | grep -q -e "--$stressor N" || continue
    stress-ng --temp-path . --"$stressor" 2 --timeout 4 --verify --quiet
done
