# Commits, each noted outside once it is durable: with less than `extra`, a commit may be rolled back by a journal whose
# removal was not. SQLite takes a commit for durable when it cannot open the folder of the journal to sync it, which is so
# once the server is dead; the handle of the folder here, which is open before, tells of that.
exec python3 -c "
import os, sqlite3
mode, out = '$MODE', os.environ['OUT']
db = sqlite3.connect('db', isolation_level=None)
assert db.execute('pragma journal_mode=' + mode).fetchone() == (mode,)
db.execute('pragma synchronous=extra')
db.execute('create table t(n integer primary key, text)')
db.execute('create index i on t(text)')
folder = os.open('.', os.O_RDONLY)
with open(out + '/committed', 'w') as committed:
    n = 0
    while True:
        db.execute('begin')
        for _ in range(5):
            n += 1
            db.execute('insert into t values(?, ?)', (n, str(n * 7919 % 1000) * (n % 300)))
        db.execute('delete from t where n = ?', (n - 500,))
        db.execute('commit')
        os.fsync(folder)
        committed.seek(0)
        committed.write('%012d' % n)
        committed.flush()
        if n == 100:
            open(out + '/ready', 'w').close()
"
