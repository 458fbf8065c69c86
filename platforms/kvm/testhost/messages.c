/* The first process of a kernel whose pipes and sockets are measured: prints the instructions of one write and of one
 * read, medians of 200 batches. An instruction takes 1 ns of the kernel's clock. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/reboot.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { BATCHES = 200 };

static long now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000L + time.tv_nsec;
}

static int by_length(const void *one, const void *other)
{
    long a = *(const long *)one, b = *(const long *)other;
    return (a > b) - (a < b);
}

static void measure(const char *name, const int ends[2], int messages, int bytes)
{
    static char message[4096];
    long writes[BATCHES], reads[BATCHES];
    int is_whole = 1;
    for (int batch = 0; batch < BATCHES; batch++) {
        long begin = now();
        for (int n = 0; n < messages; n++)
            is_whole &= write(ends[1], message, bytes) == bytes;
        long middle = now();
        for (int n = 0; n < messages; n++)
            is_whole &= read(ends[0], message, bytes) == bytes;
        writes[batch] = (middle - begin) / messages;
        reads[batch] = (now() - middle) / messages;
    }
    qsort(writes, BATCHES, sizeof *writes, by_length);
    qsort(reads, BATCHES, sizeof *reads, by_length);
    printf("| %s | %d | %d | %ld | %ld |%s\n", name, bytes, messages, writes[BATCHES / 2], reads[BATCHES / 2],
           is_whole ? "" : " NOT WHOLE");
}

int main(void)
{
    int a_pipe[2], a_socket[2];
    if (pipe(a_pipe) || socketpair(AF_UNIX, SOCK_STREAM, 0, a_socket))
        perror("pipe, socketpair");
    long begin = now();
    for (int n = 0; n < 1000; n++)
        syscall(SYS_getppid);
    printf("| getppid | - | 1000 | %ld | - |\n", (now() - begin) / 1000);
    for (int messages = 1; messages <= 100; messages *= 10) {
        measure("socket", a_socket, messages, 100);
        if (messages <= 10) /* of 16 pages in a pipe */
            measure("pipe", a_pipe, messages, 100);
    }
    printf("@@end\n");
    fflush(stdout);
    reboot(RB_POWER_OFF);
}
