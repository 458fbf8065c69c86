/* The first process of a kernel whose programs are measured: executes the lines of /programs, each between two marks.
 *
 * A line is NAME OPERATIONS COMMAND... A command named "-" only prepares, between no marks. COMMAND is executed as user
 * 1000 if its first word is "-u". OPERATIONS is how many the command carries out, or a word of its output: the
 * number after it, or the rate before a word that ends in "/s", times the seconds after "real".
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BEGIN, END, ITERATION, SYMBOLS };

/* The probe hooks this function's address, and reads its arguments. */
__attribute__((noinline, section(".mark"))) void mark(long kind, const void *text, long count)
{
    __asm__ volatile("" : : "r"(kind), "r"(text), "r"(count) : "memory");
}

static void check(int is_right, const char *what)
{
    if (is_right)
        return;
    printf("@@failed %s: %m\n", what);
    reboot(RB_POWER_OFF);
}

/* Reads a file into memory that is kept. Returns its length. */
static size_t read_file(const char *path, char **text)
{
    size_t size = 32 << 20, length = 0;
    ssize_t got;
    int from = open(path, O_RDONLY);
    *text = malloc(size);
    check(from >= 0 && *text, path);
    while ((got = read(from, *text + length, size - length - 1)) > 0)
        length += got;
    close(from);
    (*text)[length] = 0;
    return length;
}

static long operations(const char *said, char *output)
{
    char *end;
    long number = strtol(said, &end, 10);
    if (!*end)
        return number;
    char *found = strstr(output, said);
    check(found != NULL, said);
    if (strcmp(said + strlen(said) - 2, "/s"))
        return strtol(found + strlen(said), NULL, 10);
    char *real = strstr(output, "real");
    check(real != NULL, "real");
    found--;
    while (found > output && found[-1] >= '0' && found[-1] <= '9')
        found--;
    return strtol(found, NULL, 10) * strtod(real + 4, NULL);
}

static void run(char *line)
{
    static char name[16];
    char *words[128], *output;
    int count = 0;
    for (char *word = strtok(line, " "); word && count < 127; word = strtok(NULL, " "))
        words[count++] = word;
    words[count] = NULL;
    if (count < 3)
        return;
    strncpy(name, words[0], sizeof name);
    int is_measured = strcmp(name, "-") != 0, is_user = !strcmp(words[2], "-u");
    char **command = words + 2 + is_user;
    sync();
    if (is_measured)
        mark(BEGIN, name, 0);
    pid_t child = fork();
    if (child == 0) {
        int to = open("/tmp/output", O_RDWR | O_CREAT | O_TRUNC, 0600);
        dup2(to, 1), dup2(to, 2), close(to);
        if (is_user && setuid(1000))
            _exit(1);
        execv(*command, command);
        _exit(1);
    }
    int status;
    waitpid(child, &status, 0);
    read_file("/tmp/output", &output);
    if (status)
        printf("@@said %s: %.400s\n", name, output);
    check(status == 0, name);
    long done = operations(words[1], output);
    if (is_measured)
        mark(END, name, done);
    printf("%s: %ld operations\n", name, done);
    free(output);
}

/* Multiplies the times of the kernel's scheduler (`/sys/kernel/debug/sched` of 6.1). */
static void slow_scheduler(long factor)
{
    static const char *const names[] = { "latency_ns", "min_granularity_ns", "wakeup_granularity_ns", "migration_cost_ns" };
    char path[64], *text;
    mkdir("/tmp/debug", 0700);
    check(mount("debug", "/tmp/debug", "debugfs", 0, NULL) == 0, "debugfs");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "/tmp/debug/sched/%s", names[i]);
        read_file(path, &text);
        int to = open(path, O_WRONLY);
        check(dprintf(to, "%ld", strtol(text, NULL, 10) * factor) > 0, path);
        close(to);
        free(text);
    }
    umount("/tmp/debug");
}

int main(void)
{
    char *text;
    mount("proc", "/proc", "proc", 0, NULL);
    mount("dev", "/dev", "devtmpfs", 0, NULL);
    check(mount("tmp", "/tmp", "tmpfs", 0, NULL) == 0, "mount");
    mkdir("/dev/shm", 01777), chmod("/dev/shm", 01777);
    int console = open("/dev/console", O_RDWR);
    dup2(console, 0), dup2(console, 1), dup2(console, 2);
    setvbuf(stdout, NULL, _IONBF, 0);
    size_t length = read_file("/proc/kallsyms", &text);
    mark(SYMBOLS, text, length);
    free(text);
    setenv("PATH", "/usr/bin", 1);
    if (getenv("measure")) {
        /* All CPUs share one clock, in which an instruction takes 1 ns. Ours are for CPUs that take a third of one. */
        slow_scheduler(3 * sysconf(_SC_NPROCESSORS_ONLN));
        /* The kernel finishes its own start. */
        sleep(5);
        read_file("/programs", &text);
        char *rest = text;
        for (char *line; (line = strsep(&rest, "\n")) != NULL;)
            run(line);
    }
    printf("@@end\n");
    reboot(RB_POWER_OFF);
}
