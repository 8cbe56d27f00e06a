/* Many callers at once, jobs of all sizes, failures, forks: every block is done once, by one thread at a time for each
   thread number. Compiled with `workers.c`, and WITHOUT_FORK with sanitizers, by test_workers.py. */

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CALLERS = 4, BLOCKS = 40, THREADS = 4 };

int workers_run(int threads, long blocks, int (*work)(void *job, int thread, long block), void *job);

typedef struct {
    int done[BLOCKS];      /* written without atomics: a sanitizer sees if the end of a job does not wait for all */
    int workspace[THREADS]; /* likewise: a thread number is of one thread at a time */
    long failing;
} Job;

static atomic_long helped; /* blocks that were not done by their caller */

static int work(void *argument, int thread, long block)
{
    Job *job = argument;
    job->workspace[thread]++;
    job->done[block]++;
    if (thread) atomic_fetch_add(&helped, 1);
    for (volatile int i = 0; i < 200; i++) {}
    return block == job->failing;
}

static void check(int right, const char *what)
{
    if (right) return;
    fprintf(stderr, "wrong: %s\n", what);
    abort();
}

static void run_jobs(unsigned seed, int jobs)
{
    for (int number = 0; number < jobs; number++) {
        Job job = {.failing = -1};
        seed = seed * 1103515245u + 12345u;
        const long blocks = seed >> 16 & 31;
        const int threads = 1 + (int)(seed >> 24) % THREADS;
        if (number % 5 == 0 && blocks) job.failing = number % blocks;
        if (number % 64 == 0) usleep(200); /* workers go to sleep */
        check(workers_run(threads, blocks, work, &job) == (job.failing >= 0), "the result");
        int total = 0;
        for (int thread = 0; thread < THREADS; thread++) total += job.workspace[thread];
        check(total == blocks, "how many blocks were done");
        for (int block = 0; block < BLOCKS; block++) check(job.done[block] == (block < blocks), "which were done");
    }
}

static void *caller(void *seed)
{
    run_jobs(*(unsigned *)seed, 1000);
    return NULL;
}

/* A process that was forked while others work has workers of its own. */
#ifndef WITHOUT_FORK
static void check_forked(void)
{
    int status = 1;
    const pid_t child = fork();
    if (child == 0) {
        alarm(20); /* ends it with an error */
        atomic_store(&helped, 0);
        do run_jobs(7u, 200);
        while (!atomic_load(&helped)); /* the processor may be busy for a while */
        _exit(0);
    }
    check(child > 0 && waitpid(child, &status, 0) == child && status == 0, "a forked process");
}
#endif

int main(void)
{
    pthread_t callers[CALLERS];
    unsigned seeds[CALLERS];
    for (int round = 0; round < 3; round++) {
        for (unsigned i = 0; i < CALLERS; i++) {
            seeds[i] = 10u * (unsigned)round + i;
            pthread_create(&callers[i], NULL, caller, &seeds[i]);
        }
#ifndef WITHOUT_FORK
        check_forked();
#endif
        for (int i = 0; i < CALLERS; i++) pthread_join(callers[i], NULL);
    }
    check(atomic_load(&helped) > 0, "workers never helped");
    return 0; /* while workers wait */
}
