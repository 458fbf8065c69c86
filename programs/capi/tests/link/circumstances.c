/*
 * A lock in the circumstances of real programs: cancelled threads, forks, late sandboxes, many threads.
 *
 * Run with the name of a circumstance. Prints "kept", or what was lost, and fails. A watchdog ends a run that hangs.
 * With -DTIMED threads wait with a deadline first, with -DRWLOCK the lock is a reader-writer lock, and with -DCOND it
 * is made of a lock and a condition variable. With -DPTHREAD it is a pthread mutex, with -DPEER=std or parking_lot the
 * mutex of that Rust library, for comparison.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifdef PTHREAD
typedef pthread_mutex_t lock_t;
#define LOCK_INIT PTHREAD_MUTEX_INITIALIZER
static void acquire(lock_t *lock) { pthread_mutex_lock(lock); }
static bool try_acquire(lock_t *lock) { return pthread_mutex_trylock(lock) == 0; }
static void release(lock_t *lock) { pthread_mutex_unlock(lock); }
#elif defined PEER
typedef char lock_t;
#define LOCK_INIT 0
#define JOIN_(peer, name) peer##_##name
#define JOIN(peer, name) JOIN_(peer, name)
void JOIN(PEER, acquire)(void);
bool JOIN(PEER, try_acquire)(void);
void JOIN(PEER, release)(void);
static void acquire(lock_t *lock) { (void)lock, JOIN(PEER, acquire)(); }
static bool try_acquire(lock_t *lock) { return (void)lock, JOIN(PEER, try_acquire)(); }
static void release(lock_t *lock) { (void)lock, JOIN(PEER, release)(); }
#elif defined TIMED
#include <holdfast.h>
typedef holdfast_lock_t lock_t;
#define LOCK_INIT HOLDFAST_LOCK_INIT
static void acquire(lock_t *lock)
{
    struct timespec deadline;
    clock_gettime(CLOCK_MONOTONIC, &deadline);
    deadline.tv_nsec = (deadline.tv_nsec + 3000000) % 1000000000;
    deadline.tv_sec += deadline.tv_nsec < 3000000;
    /* Threads with deadlines are served in no order. */
    if (!holdfast_lock_timedlock(lock, &deadline))
        holdfast_lock_lock(lock);
}
static bool try_acquire(lock_t *lock) { return holdfast_lock_trylock(lock); }
static void release(lock_t *lock) { holdfast_lock_unlock(lock); }
#elif defined RWLOCK
#include <holdfast.h>
typedef holdfast_rwlock_t lock_t;
#define LOCK_INIT HOLDFAST_RWLOCK_INIT
static void acquire(lock_t *lock) { holdfast_rwlock_wrlock(lock); }
static bool try_acquire(lock_t *lock) { return holdfast_rwlock_trywrlock(lock); }
/* The writer becomes a reader, and reads once more. */
static void release(lock_t *lock)
{
    holdfast_rwlock_downgrade(lock);
    holdfast_rwlock_rdunlock(lock);
    holdfast_rwlock_rdlock(lock);
    holdfast_rwlock_rdunlock(lock);
}
#elif defined COND
#include <holdfast.h>
typedef struct {
    holdfast_lock_t inner;
    holdfast_cond_t freed;
    bool held;
    unsigned releases;
} lock_t;
#define LOCK_INIT { HOLDFAST_LOCK_INIT, HOLDFAST_COND_INIT, false, 0 }
static void acquire_inner(lock_t *lock)
{
    holdfast_lock_lock(&lock->inner);
    while (lock->held)
        holdfast_cond_wait(&lock->freed, &lock->inner);
}
static void acquire(lock_t *lock)
{
    acquire_inner(lock);
    lock->held = true;
    holdfast_lock_unlock(&lock->inner);
}
static bool try_acquire(lock_t *lock)
{
    holdfast_lock_lock(&lock->inner);
    bool taken = !lock->held;
    lock->held = true;
    holdfast_lock_unlock(&lock->inner);
    return taken;
}
static void release(lock_t *lock)
{
    holdfast_lock_lock(&lock->inner);
    lock->held = false;
    bool all = lock->releases++ % 256 == 0;
    holdfast_lock_unlock(&lock->inner);
    if (all)
        holdfast_cond_broadcast(&lock->freed);
    else
        holdfast_cond_signal(&lock->freed);
}
#else
#include <holdfast.h>
typedef holdfast_lock_t lock_t;
#define LOCK_INIT HOLDFAST_LOCK_INIT
static void acquire(lock_t *lock) { holdfast_lock_lock(lock); }
static bool try_acquire(lock_t *lock) { return holdfast_lock_trylock(lock); }
static void release(lock_t *lock) { holdfast_lock_unlock(lock); }
#endif

#define CHECK(condition)                                                                                       \
    do {                                                                                                       \
        if (!(condition)) {                                                                                    \
            fprintf(stderr, "%s:%d: %s: not %s\n", __FILE__, __LINE__, __func__, #condition);                  \
            _exit(1);                                                                                          \
        }                                                                                                      \
    } while (0)

static lock_t lock = LOCK_INIT;
static long count;
static atomic_bool over;
/* What the run has done so far, for the watchdog's message. */
static atomic_long progress;

static void out_of_time(int signal)
{
    char line[96];
    (void)signal;
    int length = snprintf(line, sizeof line, "hangs after %ld steps\n", atomic_load(&progress));
    if (write(STDERR_FILENO, line, (size_t)length) < 0)
        _exit(4);
    /* The first process ends its children too: one may hang before it has a watchdog, in its handler of the fork. */
    if (getpid() == getpgrp())
        kill(0, SIGKILL);
    _exit(3);
}

/* Ends this process if it still runs after so many seconds. */
static void watch(unsigned seconds)
{
    signal(SIGALRM, out_of_time);
    alarm(seconds);
}

/* A critical section that is long enough for the other threads to halt now and then. */
static void use(lock_t *used)
{
    acquire(used);
    long before = count;
    for (int i = 0; i < 2000; i++)
        atomic_signal_fence(memory_order_seq_cst);
    count = before + 1;
    release(used);
}

static void *work(void *unused)
{
    while (!atomic_load(&over))
        use(&lock);
    return unused;
}

static void start(pthread_t *thread, void *(*body)(void *), void *argument)
{
    pthread_attr_t attributes;
    CHECK(pthread_attr_init(&attributes) == 0);
    CHECK(pthread_attr_setstacksize(&attributes, 64 * 1024) == 0);
    CHECK(pthread_create(thread, &attributes, body, argument) == 0);
    pthread_attr_destroy(&attributes);
}

/* Threads that are cancelled while they lock: none may take the lock, or a place in its queue, with it. */
static void *work_until_cancelled(void *unused)
{
    for (;;) {
        int old;
        use(&lock);
        /* The only cancellation point; the thread holds nothing here. */
        pthread_testcancel();
        pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &old);
    }
    return unused;
}

static void cancel(void)
{
    enum { WORKERS = 4, CANCELLED = 4, ROUNDS = 100 };
    pthread_t workers[WORKERS], cancelled[CANCELLED];
    for (int i = 0; i < WORKERS; i++)
        start(&workers[i], work, NULL);
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < CANCELLED; i++)
            start(&cancelled[i], work_until_cancelled, NULL);
        usleep(3000);
        for (int i = 0; i < CANCELLED; i++)
            CHECK(pthread_cancel(cancelled[i]) == 0);
        for (int i = 0; i < CANCELLED; i++)
            CHECK(pthread_join(cancelled[i], NULL) == 0);
        atomic_fetch_add(&progress, CANCELLED);
    }
    atomic_store(&over, true);
    for (int i = 0; i < WORKERS; i++)
        CHECK(pthread_join(workers[i], NULL) == 0);
}

/* Forks with the lock held, as pthread_atfork's manual advises, while other threads wait for it. */
#ifdef COND
/* No other thread may hold the inner lock. */
static void acquire_it(void) { acquire_inner(&lock); }
static void release_it(void)
{
    holdfast_lock_unlock(&lock.inner);
    holdfast_cond_signal(&lock.freed);
}
#else
static void acquire_it(void) { acquire(&lock); }
static void release_it(void) { release(&lock); }
#endif

static void *use_a_few_times(void *unused)
{
    for (int i = 0; i < 2000; i++)
        use(&lock);
    return unused;
}

static void use_in_the_child(void)
{
    pthread_t threads[2];
    CHECK(try_acquire(&lock));
    long before = count;
    release(&lock);
    for (int i = 0; i < 2; i++)
        start(&threads[i], use_a_few_times, NULL);
    for (int i = 0; i < 2; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(count == before + 4000);
}

static void forks(void)
{
    enum { WORKERS = 4, CHILDREN = 40 };
    pthread_t workers[WORKERS];
    int lost = 0;
    CHECK(pthread_atfork(acquire_it, release_it, release_it) == 0);
    for (int i = 0; i < WORKERS; i++)
        start(&workers[i], work, NULL);
    for (int i = 0; i < CHILDREN; i++) {
        int status = 0;
        usleep(2000);
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            watch(5);
            use_in_the_child();
            /* A child of the child, whose parent has other threads than its own parent had. */
            pid_t grandchild = fork();
            if (grandchild == 0) {
                watch(5);
                use_in_the_child();
                _exit(0);
            }
            CHECK(waitpid(grandchild, &status, 0) == grandchild && status == 0);
            _exit(0);
        }
        /* The children run one after the other, beside the workers. */
        CHECK(waitpid(child, &status, 0) == child);
        lost += status != 0;
        atomic_fetch_add(&progress, 1);
    }
    atomic_store(&over, true);
    for (int i = 0; i < WORKERS; i++)
        CHECK(pthread_join(workers[i], NULL) == 0);
    if (lost > 0) {
        fprintf(stderr, "%d of %d children failed\n", lost, CHILDREN);
        _exit(1);
    }
}

/* The process gives up system calls after its threads have begun to contend, as sandboxes do. */
static void refuse(int number, int error)
{
    struct sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)number, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog filter = { sizeof program / sizeof program[0], program };
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    /* For all threads of the process. */
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &filter) != 0) {
        puts("SKIPPED: the system has no seccomp filters");
        exit(0);
    }
}

static void *hold_long(void *unused)
{
    for (int i = 0; i < 60; i++) {
        acquire(&lock);
        count++;
        usleep(1000);
        release(&lock);
    }
    return unused;
}

static void sandbox(int error)
{
    enum { WORKERS = 3 };
    pthread_t workers[WORKERS];
    for (int i = 0; i < WORKERS; i++)
        start(&workers[i], hold_long, NULL);
    usleep(20000);
    refuse(SYS_membarrier, error);
    for (int i = 0; i < WORKERS; i++)
        CHECK(pthread_join(workers[i], NULL) == 0);
    CHECK(count == 60 * WORKERS);
    for (int i = 0; i < WORKERS; i++)
        start(&workers[i], use_a_few_times, NULL);
    for (int i = 0; i < WORKERS; i++)
        CHECK(pthread_join(workers[i], NULL) == 0);
    CHECK(count == (60 + 2000) * WORKERS);
}

/* Signals whose handlers interrupt every kind of wait. */
static void count_signal(int signal)
{
    (void)signal;
    atomic_fetch_add(&progress, 1);
}

static void signals(void)
{
    enum { WORKERS = 3 };
    pthread_t workers[WORKERS];
    struct sigaction action = { .sa_handler = count_signal };
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    for (int i = 0; i < WORKERS; i++)
        start(&workers[i], hold_long, NULL);
    for (int i = 0; i < 100; i++) {
        usleep(500);
        CHECK(pthread_kill(workers[i % WORKERS], SIGUSR1) == 0);
    }
    for (int i = 0; i < WORKERS; i++)
        CHECK(pthread_join(workers[i], NULL) == 0);
    CHECK(count == 60 * WORKERS);
}

/* More threads wait at once than a process has by default. */
static void *use_once(void *unused)
{
    acquire(&lock);
    count++;
    release(&lock);
    atomic_fetch_add(&progress, 1);
    return unused;
}

static void storm(void)
{
    enum { THREADS = 5000 };
    static pthread_t threads[THREADS];
    acquire(&lock);
    for (int i = 0; i < THREADS; i++)
        start(&threads[i], use_once, NULL);
    usleep(200000);
    release(&lock);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(count == THREADS);
}

/* Many runnable threads on one CPU, as in a container with a quota. */
static void quota(void)
{
    enum { WORKERS = 8 };
    pthread_t workers[WORKERS];
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    CHECK(sched_setaffinity(0, sizeof one, &one) == 0);
    for (int i = 0; i < WORKERS; i++)
        start(&workers[i], use_a_few_times, NULL);
    for (int i = 0; i < WORKERS; i++)
        CHECK(pthread_join(workers[i], NULL) == 0);
    CHECK(count == 2000L * WORKERS);
}

/* exec while other threads wait, in a program that then finds its own locks free. */
static void execs(char **argv)
{
    pthread_t worker;
    for (int i = 0; i < 3; i++)
        start(&worker, work, NULL);
    usleep(5000);
    execl("/proc/self/exe", argv[0], "signals", (char *)NULL);
    CHECK(!"execl returned");
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "";
    const struct rlimit no_core = { 0, 0 };
    setrlimit(RLIMIT_CORE, &no_core);
    setpgid(0, 0);
    watch(60);
    if (strcmp(name, "cancel") == 0)
        cancel();
    else if (strcmp(name, "fork") == 0)
        forks();
    else if (strcmp(name, "sandbox-eperm") == 0)
        sandbox(EPERM);
    else if (strcmp(name, "sandbox-enosys") == 0)
        sandbox(ENOSYS);
    else if (strcmp(name, "signals") == 0)
        signals();
    else if (strcmp(name, "storm") == 0)
        storm();
    else if (strcmp(name, "quota") == 0)
        quota();
    else if (strcmp(name, "exec") == 0)
        execs(argv);
    else
        CHECK(!"a known circumstance");
    puts("kept");
    return 0;
}
