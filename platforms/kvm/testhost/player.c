/* The first process of a kernel whose scheduler is recorded: plays the scenarios of /plan and prints the trace.
 *
 * Lines of the plan (`holdfast_real_host::scheduler::Scenario::plan` writes them):
 *   scenario NAME MILLISECONDS
 *   trace EVENT                                   such as irq/softirq_entry, besides the scheduler's
 *   group NAME WEIGHT QUOTA_US PERIOD_US          a cgroup; a quota of 0 is none
 *   threads NAME COUNT COMPUTE_US SLEEP_US NICE GROUP CPUS PAIRED YIELDS
 *   play
 * GROUP is "-" for the root group. CPUS is a hexadecimal mask, 0 for all. COMPUTE_US of 0 never sleeps. Each computing
 * time and each sleep is drawn from half to one and a half of its figure. Threads that are paired do not sleep: after
 * its computing time a thread wakes its partner through a pipe and waits for the answer. Threads that yield call
 * sched_yield instead.
 *
 * The output goes to port 0xe9 (isa-debugcon), which costs the guest no time to wait for. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/io.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/reboot.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PORT 0xe9
#define TRACE "/sys/kernel/tracing/"
#define CGROUP "/sys/fs/cgroup/"
#define PROCESSES 512
/* The real-time clock's index port, its registers A and B, and their values for 8192 interrupts a second. */
#define CLOCK 0x70
#define CLOCK_A 0x0a
#define CLOCK_B 0x0b
#define CLOCK_8192_HZ 0x23
#define CLOCK_PERIODIC 0x42
/* Time from the first thread's creation to their common start. */
#define SETTLE_MS 300

static void put(const char *text, size_t length) {
    outsb(PORT, text, length);
}

static void say(const char *format, ...) {
    char line[512];
    va_list rest;
    va_start(rest, format);
    int length = vsnprintf(line, sizeof line, format, rest);
    va_end(rest);
    put(line, (size_t)length < sizeof line ? (size_t)length : sizeof line - 1);
}

/* Makes the emulator's CPUs take turns of at most 122 us divided by their number. A turn ends with the next timer of
 * any device; the clock's interrupt is masked, since no driver of it is loaded. With long turns a thread notices late
 * that it has computed. */
static void shorten_turns(void) {
    outb(CLOCK_A, CLOCK), outb(CLOCK_8192_HZ, CLOCK + 1);
    outb(CLOCK_B, CLOCK), outb(CLOCK_PERIODIC, CLOCK + 1);
}

static void fail(const char *what) {
    say("@@failed %s: %s\n", what, strerror(errno));
    reboot(RB_POWER_OFF);
    _exit(1);
}

static void set(const char *path, const char *format, ...) {
    char value[128];
    va_list rest;
    va_start(rest, format);
    vsnprintf(value, sizeof value, format, rest);
    va_end(rest);
    int file = open(path, O_WRONLY | O_TRUNC);
    if (file < 0 || write(file, value, strlen(value)) < 0)
        fail(path);
    close(file);
}

static uint64_t clock_ns(clockid_t clock) {
    struct timespec at;
    clock_gettime(clock, &at);
    return (uint64_t)at.tv_sec * 1000000000 + (uint64_t)at.tv_nsec;
}

static void sleep_until(uint64_t at) {
    struct timespec until = {(time_t)(at / 1000000000), (long)(at % 1000000000)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR) {
    }
}

/* The next number of a thread's stream, from half to one and a half of `mean`. xorshift64*, as in draw.rs. */
static uint64_t draw(uint64_t *state, uint64_t mean) {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    uint64_t high = (*state * 0x2545f4914f6cdd1dULL) >> 32;
    return mean / 2 + ((mean * high) >> 32);
}

/* Computes for `ns` nanoseconds of its own CPU time. */
static void compute(uint64_t ns) {
    uint64_t end = clock_ns(CLOCK_THREAD_CPUTIME_ID) + ns;
    do {
        for (volatile int turn = 0; turn < 100; turn++) {
        }
    } while (clock_ns(CLOCK_THREAD_CPUTIME_ID) < end);
}

struct threads {
    char name[16], group[16];
    unsigned count, paired, yields;
    int nice;
    uint64_t compute_us, sleep_us, cpus;
};

static pid_t children[PROCESSES];
static unsigned count, cpus;

/* Lets this thread run on the CPUs of `mask` only. */
static void run_on(uint64_t mask) {
    cpu_set_t set;
    CPU_ZERO(&set);
    for (int cpu = 0; cpu < 64; cpu++)
        if (mask >> cpu & 1)
            CPU_SET(cpu, &set);
    if (sched_setaffinity(0, sizeof set, &set) < 0)
        fail("sched_setaffinity");
}

/* The CPU of `mask` with this number, modulo their number. */
static uint64_t one_of(uint64_t mask, uint64_t number) {
    number %= (uint64_t)__builtin_popcountll(mask);
    while (number--)
        mask &= mask - 1;
    return mask & -mask;
}

static void thread(const struct threads *of, unsigned index, uint64_t seed, uint64_t start, int in, int out) {
    char name[16];
    snprintf(name, sizeof name, "%.10s.%u", of->name, index % 1000);
    prctl(PR_SET_NAME, name);
    prctl(PR_SET_TIMERSLACK, 1UL);
    if (setpriority(PRIO_PROCESS, 0, of->nice) < 0)
        fail("setpriority");
    /* All schedulers begin with the same threads on each CPU. */
    uint64_t all = of->cpus ? of->cpus : ~0ULL >> (64 - cpus);
    run_on(one_of(all, seed - 1));
    if (strcmp(of->group, "-")) {
        char path[128];
        snprintf(path, sizeof path, CGROUP "%s/cgroup.procs", of->group);
        set(path, "%d", getpid());
    }
    uint64_t state = seed * 0x9e3779b97f4a7c15ULL + 1;
    sleep_until(start);
    run_on(all);
    char byte = 0;
    if (of->paired && index % 2 && read(in, &byte, 1) != 1)
        fail("read");
    for (;;) {
        if (!of->compute_us)
            for (;;)
                __asm__ volatile("");
        compute(draw(&state, of->compute_us * 1000));
        if (of->paired) {
            if (write(out, &byte, 1) != 1 || read(in, &byte, 1) != 1)
                fail("pipe");
        } else if (of->yields) {
            sched_yield();
        } else {
            uint64_t ns = draw(&state, of->sleep_us * 1000);
            struct timespec length = {(time_t)(ns / 1000000000), (long)(ns % 1000000000)};
            clock_nanosleep(CLOCK_MONOTONIC, 0, &length, NULL);
        }
    }
}

static void spawn(const struct threads *of, uint64_t *seed, uint64_t start) {
    int there[2], back[2];
    for (unsigned index = 0; index < of->count; index++) {
        if (of->paired && index % 2 == 0 && (pipe(there) < 0 || pipe(back) < 0))
            fail("pipe");
        pid_t child = fork();
        if (child < 0 || count == PROCESSES)
            fail("fork");
        *seed += 1;
        if (child == 0) {
            int first = index % 2 == 0;
            thread(of, index, *seed, start, first ? back[0] : there[0], first ? there[1] : back[1]);
        }
        children[count++] = child;
        if (of->paired && index % 2)
            close(there[0]), close(there[1]), close(back[0]), close(back[1]);
    }
}

/* Prints the lines of the trace that are events. */
static void print_trace(void) {
    FILE *trace = fopen(TRACE "trace", "r");
    char *line = NULL;
    size_t size = 0;
    ssize_t length;
    if (!trace)
        fail(TRACE "trace");
    while ((length = getline(&line, &size, trace)) > 0)
        if (line[0] != '#') {
            char *from = line;
            while (*from == ' ')
                from++;
            put(from, (size_t)(length - (from - line)));
        }
    free(line);
    fclose(trace);
}

static void play(const char *name, unsigned ms, const struct threads *all, unsigned kinds) {
    uint64_t begin = clock_ns(CLOCK_MONOTONIC), start = begin + SETTLE_MS * 1000000ULL, seed = 0;
    for (unsigned kind = 0; kind < kinds; kind++)
        spawn(&all[kind], &seed, start);
    set(TRACE "trace", "0");
    set(TRACE "tracing_on", "1");
    say("@@scenario %s\n@@start %llu\n", name, (unsigned long long)start);
    sleep_until(start + ms * 1000000ULL);
    set(TRACE "tracing_on", "0");
    while (count) {
        kill(children[--count], SIGKILL);
        waitpid(children[count], NULL, 0);
    }
    print_trace();
    say("@@end %s\n", name);
}

int main(void) {
    struct utsname system;
    static struct threads all[32];
    char line[256], name[64] = "", event[64], path[128], groups[16][16];
    unsigned ms = 0, kinds = 0, made = 0;
    mkdir("/proc", 0755), mkdir("/sys", 0755), mkdir("/dev", 0755);
    mount("proc", "/proc", "proc", 0, NULL);
    mount("sys", "/sys", "sysfs", 0, NULL);
    if (ioperm(PORT, 1, 1) < 0 || ioperm(CLOCK, 2, 1) < 0)
        return 1;
    shorten_turns();
    if (mount("trace", "/sys/kernel/tracing", "tracefs", 0, NULL) < 0 && errno != EBUSY)
        fail("tracefs");
    if (mount("cgroup", "/sys/fs/cgroup", "cgroup2", 0, NULL) < 0 && errno != EBUSY)
        fail("cgroup2");
    set(CGROUP "cgroup.subtree_control", "+cpu");
    uname(&system);
    cpus = (unsigned)sysconf(_SC_NPROCESSORS_ONLN);
    say("@@linux %s\n@@cpus %u\n", system.release, cpus);
    set(TRACE "tracing_on", "0");
    set(TRACE "trace_clock", "mono");
    set(TRACE "buffer_size_kb", "24000");
    set(TRACE "events/sched/sched_switch/enable", "1");
    set(TRACE "events/sched/sched_wakeup/enable", "1");
    set(TRACE "events/sched/sched_migrate_task/enable", "1");
    FILE *plan = fopen("/plan", "r");
    if (!plan)
        fail("/plan");
    while (fgets(line, sizeof line, plan)) {
        struct threads *next = &all[kinds];
        unsigned weight, quota, period;
        if (sscanf(line, "scenario %63s %u", name, &ms) == 2) {
            kinds = 0;
        } else if (sscanf(line, "trace %63s", event) == 1) {
            snprintf(path, sizeof path, TRACE "events/%s/enable", event);
            set(path, "1");
        } else if (sscanf(line, "group %15s %u %u %u", groups[made], &weight, &quota, &period) == 4) {
            snprintf(path, sizeof path, CGROUP "%s", groups[made]);
            if (mkdir(path, 0755) < 0)
                fail(path);
            snprintf(path, sizeof path, CGROUP "%s/cpu.weight", groups[made]);
            set(path, "%u", weight);
            snprintf(path, sizeof path, CGROUP "%s/cpu.max", groups[made++]);
            if (quota)
                set(path, "%u %u", quota, period);
        } else if (sscanf(line, "threads %15s %u %lu %lu %d %15s %lx %u %u", next->name, &next->count, &next->compute_us,
                          &next->sleep_us, &next->nice, next->group, &next->cpus, &next->paired,
                          &next->yields) == 9) {
            kinds++;
        } else if (!strncmp(line, "play", 4)) {
            play(name, ms, all, kinds);
            while (made) {
                snprintf(path, sizeof path, CGROUP "%s", groups[--made]);
                for (int try = 0; rmdir(path) < 0 && try < 100; try++)
                    usleep(10000);
            }
        } else {
            errno = EINVAL;
            fail(line);
        }
    }
    say("@@done\n");
    reboot(RB_POWER_OFF);
    return 1;
}
