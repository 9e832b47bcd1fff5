export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a GIT_CONFIG_COUNT=1
export GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0='*'
git init -q first
cd first
cp -r "$ROOT/crates" "$ROOT/xtask" "$ROOT/docs" .
git add .
git commit -qm all
for n in 1 2 3 4 5; do
    git mv crates "crates$n" && git mv "crates$n" crates
    echo "$n" >> docs/design.md
    git commit -qam "$n"
    git tag "t$n"
done
git checkout -qb side t2
git rm -qr xtask
git commit -qm without
git checkout -q t5
git gc -q
git fsck --full --strict
git clone -q --no-local . ../second
cd ../second
git fsck --full --strict
git checkout -q side
git checkout -q t5
test -z "$(git status --porcelain)"
diff -r --no-dereference "$ROOT/crates" crates
# What is the project's own history, if it is a repository.
if git -C "$ROOT" rev-parse -q --verify HEAD > /dev/null; then
    git clone -q --no-local "$ROOT" ../project
    git -C ../project fsck --full
    test -z "$(git -C ../project status --porcelain)"
fi
