python3 -c "
for n in range(60):
    with open('f%d.c' % n, 'w') as f:
        f.write('#include <stdio.h>\n#include <stdlib.h>\n')
        for k in range(50):
            f.write('int f%d_%d(int x) { return x * %d + (x %% %d); }\n' % (n, k, k + 1, n + 2))
with open('main.c', 'w') as f:
    calls = ['f%d_%d' % (n, k) for n in range(60) for k in range(50)]
    f.write(''.join('int %s(int);\n' % call for call in calls))
    f.write('#include <stdio.h>\nint main() { int s = 0;\n' + ''.join('s += %s(7);\n' % call for call in calls))
    f.write('printf(\"%d\\\\n\", s); return 0; }\n')
print(sum(7 * (k + 1) + 7 % (n + 2) for n in range(60) for k in range(50)), file=open('expected', 'w'))
"
ls f*.c | xargs -P 4 -n 3 gcc -O1 -g -pipe -c
gcc -O1 -save-temps -c main.c
ar rcs libf.a f*.o
gcc main.o libf.a -o program
./program > seen
cmp seen expected
