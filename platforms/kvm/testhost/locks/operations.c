/* The first process of a measured kernel: carries out operations one at a time, between marks that the probe reads.
 *
 * Each pass is a process of its own on a CPU of its own, with a directory, files and pipes of its own. So a lock whose
 * address is met in several passes is shared by them, and a lock met in one pass is that process's or that object's.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BEGIN, END, ITERATION, SYMBOLS };
#define PAGE 4096

/* The probe hooks this function's address, and reads its arguments. */
__attribute__((noinline, section(".mark"))) void mark(long kind, const void *text, long count)
{
    __asm__ volatile("" : : "r"(kind), "r"(text), "r"(count) : "memory");
}

static char directory[64], file[96], other[96];
static int descriptor, pipes[4], sockets[2];
static char page[PAGE] __attribute__((aligned(PAGE))), *memory;
static long at;
static uint32_t *word;
static pid_t partner;
static int cpu;

static void check(int is_right, const char *what)
{
    if (is_right)
        return;
    printf("@@failed %s: %m\n", what);
    reboot(RB_POWER_OFF);
}
/* Passes on all CPUs at the same time: the operation of the measured one, and how many others have finished theirs. */
static struct { volatile int operation, is_over, arrived, others; } *stage;
static void begin_together(int operation) { stage->operation = operation; }
static void end_together(void)
{
    stage->is_over = 1;
    while (stage->arrived < stage->others)
        usleep(1000);
    stage->arrived = 0;
    stage->is_over = 0;
}

static void pin(int to)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(to, &set);
    cpu = to;
    check(sched_setaffinity(0, sizeof set, &set) == 0, "affinity");
}
/* Has a child work on the next CPU, if all CPUs work at the same time. */
static void leave_cpu(void)
{
    if (stage->others)
        pin((cpu + 1) % (stage->others + 1));
}

static void no_work(void) {}
static void nothing(void) { for (volatile int i = 0; i < 20000; i++) {} }

static void end_of_child(void) { _exit(0); }
static void fork_exit_wait(void)
{
    pid_t child = fork();
    if (child == 0)
        end_of_child();
    check(child > 0 && waitpid(child, NULL, 0) == child, "fork");
}
static void exec_program(void)
{
    pid_t child = vfork();
    if (child == 0) {
        char *arguments[] = { "quit", NULL };
        execve("/init", arguments, NULL);
        _exit(1);
    }
    int status;
    check(child > 0 && waitpid(child, &status, 0) == child && status == 0, "exec");
}

#define FAULTS 4096
static void begin_anonymous(void)
{
    memory = mmap(NULL, FAULTS * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    check(memory != MAP_FAILED && madvise(memory, FAULTS * PAGE, MADV_NOHUGEPAGE) == 0, "mmap");
    at = 0;
}
static void anonymous_fault(void) { memory[at++ * PAGE] = 1; }
static void end_anonymous(void) { munmap(memory, FAULTS * PAGE); }

#define AROUND 16
#define FILE_FAULTS 512
static void begin_file(void)
{
    descriptor = open(other, O_RDWR | O_CREAT | O_TRUNC, 0600);
    for (int i = 0; i < FILE_FAULTS * AROUND; i++)
        check(write(descriptor, page, PAGE) == PAGE, "write a file");
    memory = mmap(NULL, FILE_FAULTS * AROUND * PAGE, PROT_READ, MAP_PRIVATE, descriptor, 0);
    check(memory != MAP_FAILED, "mmap a file");
    at = 0;
}
static void file_fault(void) { (void)*(volatile char *)(memory + at++ * AROUND * PAGE); }
static void end_file(void) { munmap(memory, FILE_FAULTS * AROUND * PAGE); close(descriptor); unlink(other); }

/* A page that a child shares is copied when the parent writes it. */
static void begin_copy(void)
{
    begin_anonymous();
    for (int i = 0; i < FAULTS; i++)
        memory[i * PAGE] = 1;
    partner = fork();
    if (partner == 0) {
        pause();
        _exit(0);
    }
    usleep(20000);
}
static void end_partner(void) { kill(partner, SIGKILL); waitpid(partner, NULL, 0); }
static void end_copy(void) { end_partner(); end_anonymous(); }

static void map_unmap(void)
{
    char *mapped = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    check(mapped != MAP_FAILED, "mmap");
    *mapped = 1;
    munmap(mapped, PAGE);
}
static void begin_discard(void) { memory = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); }
static void touch_discard(void) { *memory = 1; madvise(memory, PAGE, MADV_DONTNEED); }
static void end_discard(void) { munmap(memory, PAGE); }

static void open_close(void) { int opened = open(file, O_RDONLY); check(opened >= 0, "open"); close(opened); }
static void dup_close(void) { close(dup(descriptor)); }
static void stat_file(void) { struct stat status; check(stat(file, &status) == 0, "stat"); }
static void begin_open(void) { descriptor = open(file, O_RDWR); check(descriptor >= 0, "open"); }
static void end_open(void) { close(descriptor); }
static void read_page(void) { check(pread(descriptor, page, PAGE, 0) == PAGE, "read"); }
static void overwrite_page(void) { check(pwrite(descriptor, page, PAGE, 0) == PAGE, "write"); }
static void begin_append(void) { descriptor = open(other, O_RDWR | O_CREAT | O_TRUNC, 0600); }
static void append_page(void) { check(write(descriptor, page, PAGE) == PAGE, "append"); }
static void end_append(void) { close(descriptor); unlink(other); }
static void create_unlink(void)
{
    int created = open(other, O_RDWR | O_CREAT | O_EXCL, 0600);
    check(created >= 0, "create");
    close(created);
    unlink(other);
}

static void begin_pipe(void) { check(pipe(pipes) == 0 && pipe(pipes + 2) == 0, "pipe"); }
static void end_pipe(void) { for (int i = 0; i < 4; i++) close(pipes[i]); }
static void pipe_write_read(void)
{
    check(write(pipes[1], page, 64) == 64 && read(pipes[0], page, 64) == 64, "pipe");
}
static void begin_echo(void)
{
    begin_pipe();
    partner = fork();
    if (partner == 0) {
        leave_cpu();
        while (read(pipes[0], page, 64) == 64 && write(pipes[3], page, 64) == 64) {}
    }
}
static void pipe_round_trip(void)
{
    check(write(pipes[1], page, 64) == 64 && read(pipes[2], page, 64) == 64, "echo");
}
static void end_echo(void) { end_partner(); end_pipe(); }

static void begin_socket(void) { check(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0, "socketpair"); }
static void end_socket(void) { close(sockets[0]); close(sockets[1]); }
static void socket_message(void)
{
    check(write(sockets[0], page, 100) == 100 && read(sockets[1], page, 100) == 100, "socket");
}

static void begin_word(void)
{
    word = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    check(word != MAP_FAILED, "mmap");
    *word = 0;
}
static long futex(int operation, uint32_t value) { return syscall(SYS_futex, word, operation, value, NULL, NULL, 0); }
static void futex_wake(void) { futex(FUTEX_WAKE, 1); }
/* Passes a turn back and forth. */
static void take_turn(uint32_t mine)
{
    while (__atomic_load_n(word, __ATOMIC_SEQ_CST) != mine)
        futex(FUTEX_WAIT, !mine);
}
static void give_turn(uint32_t next) { __atomic_store_n(word, next, __ATOMIC_SEQ_CST); futex(FUTEX_WAKE, 1); }
static void begin_turns(void)
{
    begin_word();
    partner = fork();
    if (partner == 0) {
        leave_cpu();
        for (;;) {
            take_turn(1);
            give_turn(0);
        }
    }
}
static void futex_round_trip(void) { give_turn(1); take_turn(0); }
static void end_turns(void) { end_partner(); munmap(word, PAGE); }

/* A process as a compiler's: it works on memory and files, and ends. */
#define PROCESS_PAGES 1024
static void short_process(void)
{
    pid_t child = fork();
    if (child == 0) {
        leave_cpu();
        memory = mmap(NULL, PROCESS_PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        for (int i = 0; i < PROCESS_PAGES; i++)
            memory[i * PAGE] = 1;
        open_close();
        stat_file();
        int created = open(other, O_RDWR | O_CREAT | O_TRUNC, 0600);
        for (int i = 0; i < 16; i++)
            check(write(created, page, PAGE) == PAGE, "write");
        _exit(0);
    }
    check(child > 0 && waitpid(child, NULL, 0) == child, "fork");
    unlink(other);
}

/* On a disk. Names that a step makes are of a group of files, so that a directory has several. */
#define NAMES 400
static char *name_of(long number)
{
    static char name[128];
    snprintf(name, sizeof name, "%s/name%ld", directory, number);
    return name;
}
static void begin_names(void) { at = 0; }
static void create(void)
{
    int created = open(name_of(at++), O_RDWR | O_CREAT | O_EXCL, 0600);
    check(created >= 0, "create");
    close(created);
}
static void remove_name(void) { check(unlink(name_of(at++)) == 0, "unlink"); }
static void end_names(void) { for (long i = 0; i < at; i++) unlink(name_of(i)); }
static void begin_unlink(void)
{
    begin_names();
    for (long i = 0; i < NAMES + 100; i++)
        create();
    begin_names();
}
static void end_unlink(void)
{
    while (at < NAMES + 100)
        remove_name();
}
static void rename_file(void)
{
    char from[128];
    strcpy(from, name_of(at));
    check(rename(at ? from : file, name_of(at + 1)) == 0, "rename");
    at++;
}
static void end_rename(void) { check(rename(name_of(at), file) == 0, "rename back"); }
static void link_unlink(void) { check(link(file, other) == 0 && unlink(other) == 0, "link"); }
static void make_directory(void) { check(mkdir(other, 0700) == 0 && rmdir(other) == 0, "mkdir"); }
#define PAGES 32
static void write_unlink(void)
{
    int created = open(other, O_RDWR | O_CREAT | O_EXCL, 0600);
    for (int i = 0; i < PAGES; i++)
        check(write(created, page, PAGE) == PAGE, "write");
    close(created);
    check(unlink(other) == 0, "unlink");
}
static void overwrite_sync(void) { overwrite_page(); check(fsync(descriptor) == 0, "fsync"); }
static void append_sync(void)
{
    for (int i = 0; i < 8; i++)
        append_page();
    check(fsync(descriptor) == 0, "fsync");
}
static void sync_alone(void) { check(fsync(descriptor) == 0, "fsync"); }

typedef struct { char name[16]; long iterations; void (*begin)(void), (*step)(void), (*end)(void); } operation;

/* Those of a file system on a disk. */
static const operation on_disk[] = {
    { "user", 2000, no_work, nothing, no_work },
    { "open_close", 1000, no_work, open_close, no_work },
    { "stat", 1000, no_work, stat_file, no_work },
    { "read_page", 1000, begin_open, read_page, end_open },
    { "overwrite_page", 1000, begin_open, overwrite_page, end_open },
    { "append_page", 1000, begin_append, append_page, end_append },
    { "create", NAMES, begin_names, create, end_names },
    { "unlink", NAMES, begin_unlink, remove_name, end_unlink },
    { "rename", NAMES, begin_names, rename_file, end_rename },
    { "link_unlink", 400, no_work, link_unlink, no_work },
    { "make_directory", 400, no_work, make_directory, no_work },
    { "write_unlink", 200, no_work, write_unlink, no_work },
    { "fsync", 200, begin_open, sync_alone, end_open },
    { "overwrite_sync", 200, begin_open, overwrite_sync, end_open },
    { "append_sync", 200, begin_append, append_sync, end_append },
    { "", 0, NULL, NULL, NULL },
};

/* Names have at most 16 characters. */
static const operation in_memory[] = {
    { "user", 2000, no_work, nothing, no_work },
    { "fork", 300, no_work, fork_exit_wait, no_work },
    { "exec", 200, no_work, exec_program, no_work },
    { "anonymous_fault", FAULTS, begin_anonymous, anonymous_fault, end_anonymous },
    { "copy_fault", FAULTS, begin_copy, anonymous_fault, end_copy },
    { "file_fault", FILE_FAULTS, begin_file, file_fault, end_file },
    { "map_unmap", 1000, no_work, map_unmap, no_work },
    { "touch_discard", 1000, begin_discard, touch_discard, end_discard },
    { "open_close", 2000, no_work, open_close, no_work },
    { "dup_close", 4000, begin_open, dup_close, end_open },
    { "stat", 4000, no_work, stat_file, no_work },
    { "read_page", 4000, begin_open, read_page, end_open },
    { "overwrite_page", 4000, begin_open, overwrite_page, end_open },
    { "append_page", 2000, begin_append, append_page, end_append },
    { "create_unlink", 1000, no_work, create_unlink, no_work },
    { "pipe", 4000, begin_pipe, pipe_write_read, end_pipe },
    { "pipe_wake", 1000, begin_echo, pipe_round_trip, end_echo },
    { "socket", 2000, begin_socket, socket_message, end_socket },
    { "futex_wake", 4000, begin_word, futex_wake, no_work },
    { "futex_turn", 1000, begin_turns, futex_round_trip, end_turns },
    { "process", 40, no_work, short_process, no_work },
    { "", 0, NULL, NULL, NULL },
};

/* Where the passes work, and on what. */
static const char *place = "/tmp";
static const operation *operations = in_memory;

/* Loads a module, if the initial file system has it. The kernel itself may have what it provides. */
static void load(const char *path)
{
    int from = open(path, O_RDONLY);
    if (from >= 0)
        check(syscall(SYS_finit_module, from, "rd_nr=1 rd_size=524288", 0) == 0, path);
}

/* Puts the file system of /disk on a RAM disk and mounts it. /disk is a sequence of block numbers with their blocks. */
static void mount_disk(const char *format)
{
    load("/brd.ko");
    load("/libcrc32c.ko");
    load("/xfs.ko");
    int from = open("/disk", O_RDONLY), to = open("/dev/ram0", O_RDWR);
    check(from >= 0 && to >= 0, "open the RAM disk");
    uint64_t block;
    while (read(from, &block, sizeof block) == sizeof block)
        check(read(from, page, PAGE) == PAGE && pwrite(to, page, PAGE, block * PAGE) == PAGE, "fill the RAM disk");
    check(fsync(to) == 0 && mkdir("/mount", 0777) == 0, "fill the RAM disk");
    close(to);
    check(mount("/dev/ram0", "/mount", format, 0, NULL) == 0, "mount the RAM disk");
    memset(page, 1, PAGE);
    place = "/mount";
    operations = on_disk;
}

static void begin_pass(int pass)
{
    snprintf(directory, sizeof directory, "%s/pass%d", place, pass);
    check(mkdir(directory, 0700) == 0, "mkdir");
    snprintf(file, sizeof file, "%s/file", directory);
    snprintf(other, sizeof other, "%s/other", directory);
    int created = open(file, O_RDWR | O_CREAT, 0600);
    check(write(created, page, PAGE) == PAGE, "write");
    close(created);
}

/* Takes back what this pass has given to the kernel, and keeps it. Else the next pass got it, and the two would seem
 * to share it. */
static void keep(void)
{
    enum { FILES = 4000, OPEN = 64, PROCESSES = 64 };
    char name[128];
    /* RCU has still some. */
    usleep(100000);
    for (int each = 0; each < FILES; each++) {
        snprintf(name, sizeof name, "%s/kept%d", directory, each);
        int created = open(name, O_RDWR | O_CREAT, 0600);
        check(created >= 0, "open");
        if (each >= OPEN)
            close(created);
    }
    for (int each = 0; each < PROCESSES; each++) {
        pid_t child = fork();
        if (child == 0) {
            char *arguments[] = { "stay", NULL };
            if (each % 2)
                execve("/init", arguments, NULL);
            for (;;)
                pause();
        }
        check(child > 0, "fork");
    }
    raise(SIGSTOP);
}

static int is_fault(const operation *each) { return strstr(each->name, "fault") != NULL; }

/* Steps of an operation. The CPUs of a machine that work together are slow, and need fewer. */
static long iterations_of(const operation *each)
{
    long all = each->iterations - (is_fault(each) ? 64 : 0);
    return stage->others ? all / (is_fault(each) ? 4 : 8) : all;
}
static long warm_steps(const operation *each)
{
    long tenth = iterations_of(each) / 10;
    return is_fault(each) ? 64 : stage->others || tenth < 10 ? tenth : 100;
}

/* A pass that is measured. */
static void run_pass(void)
{
    for (const operation *each = operations; *each->name; each++) {
        /* A process is a mixture of the others. It is there to move lines from CPU to CPU. */
        if (each->step == short_process && !stage->others)
            continue;
        begin_together(each - operations);
        each->begin();
        for (long warm = 0; warm < warm_steps(each); warm++)
            each->step();
        long iterations = iterations_of(each);
        /* What the kernel puts off (RCU callbacks, kworkers) belongs to the operation that caused it. */
        usleep(40000);
        mark(BEGIN, each->name, iterations);
        for (long n = 0; n < iterations; n++) {
            each->step();
            mark(ITERATION, each->name, n);
        }
        usleep(40000);
        mark(END, each->name, iterations);
        each->end();
        end_together();
    }
}

/* Repeats whichever operation the measured pass works on, for as long as it does. */
static void accompany(void)
{
    for (const operation *each = operations; *each->name; each++) {
        while (stage->operation < each - operations)
            usleep(1000);
        while (stage->operation == each - operations && !stage->is_over) {
            each->begin();
            for (long n = 0; n < iterations_of(each) && !stage->is_over; n++)
                each->step();
            each->end();
        }
        __atomic_fetch_add(&stage->arrived, 1, __ATOMIC_SEQ_CST);
        while (stage->is_over)
            usleep(1000);
    }
    _exit(0);
}

/* Hands the kernel's symbols to the probe. */
static void give_symbols(void)
{
    size_t size = 32 << 20, length = 0;
    char *text = malloc(size);
    int from = open("/proc/kallsyms", O_RDONLY);
    ssize_t got;
    check(from >= 0, "kallsyms");
    while ((got = read(from, text + length, size - length)) > 0)
        length += got;
    mark(SYMBOLS, text, length);
    /* Or each fork copies the pages. */
    free(text);
    close(from);
}

int main(int count, char **arguments)
{
    if (count >= 1 && !strcmp(arguments[0], "quit"))
        return 0;
    while (count >= 1 && !strcmp(arguments[0], "stay"))
        pause();
    mount("proc", "/proc", "proc", 0, NULL);
    mount("dev", "/dev", "devtmpfs", 0, NULL);
    mkdir("/tmp", 0777);
    check(mount("tmp", "/tmp", "tmpfs", 0, NULL) == 0, "mount");
    int console = open("/dev/console", O_RDWR);
    dup2(console, 0), dup2(console, 1), dup2(console, 2);
    setvbuf(stdout, NULL, _IONBF, 0);
    const char *what = getenv("measure"), *disk = getenv("disk");
    if (disk)
        mount_disk(disk);
    give_symbols();
    stage = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    check(stage != MAP_FAILED, "mmap");
    stage->operation = -1;
    if (what && strcmp(what, "symbols")) {
        int passes = atoi(what), are_together = getenv("together") != NULL;
        if (are_together)
            stage->others = passes - 1;
        /* The kernel finishes its own start. */
        sleep(5);
        for (int pass = passes - 1; are_together && pass > 0; pass--)
            if (fork() == 0) {
                pin(pass);
                begin_pass(pass);
                accompany();
            }
        for (int pass = 0; pass < (are_together ? 1 : passes); pass++) {
            pid_t child = fork();
            if (child == 0) {
                pin(pass);
                begin_pass(pass);
                run_pass();
                sync();
                keep();
            }
            int status;
            waitpid(child, &status, WUNTRACED);
            check(WIFSTOPPED(status), "a pass");
        }
    }
    printf("@@end\n");
    sync();
    reboot(RB_POWER_OFF);
}
