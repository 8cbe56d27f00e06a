/* Threads that stay: a job is a number of blocks, of which each thread has a share.

   The caller of `workers_run` works as well, as thread 0. A worker that takes a block of its share is a part of the job
   until it finds no block anywhere: whoever has finished its share goes on with those of the others. Then the caller waits
   until all blocks that were taken are done. A worker that is slow to wake up, and finds nothing left, is not waited for.

   To fetch a cache line that another core has written takes about as long as thousands of multiply-adds. So all that the
   caller and a worker tell each other is in one line. And the shares are the same in every call of a loop: what a thread
   reads and writes stays in its own caches.

   There is one job at a time. Who calls meanwhile does its work alone, as does a caller for whom no thread can be made.
   Workers wait for the next job actively for a moment, then asleep. A forked process has none, and makes its own. */

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

typedef int (*Work)(void *job, int thread, long block);

/* Nanoseconds of waiting actively: a few calls from Python, and what it takes to wake a thread up. */
#define PATIENCE 50000

#define MOST_THREADS 1024
#define MOST_BLOCKS 0x7fffffffL

#define LINE _Alignas(64)

typedef struct {
    Work work;
    void *argument;
    int threads;
} Job;

/* A thread, of which number 0 is the caller. What it is told is written while there is no job, `share` last; and it is
   read by a worker that has taken a block. */
typedef struct {
    LINE _Atomic uint64_t share; /* its end, times 2^32, plus the next block that nobody has taken */
    Job job;
    int failed;        /* written by the worker, before `done` */
    atomic_long done;  /* blocks that the worker has done, its own and others; written when it finds no more */
    LINE atomic_int asleep;
    pthread_cond_t opened;
} Thread;

static Thread threads[MOST_THREADS];

static struct {
    pthread_mutex_t owner; /* held by the caller whose job it is */
    int workers;
    pthread_mutex_t lock; /* of all conditions */
    pthread_cond_t finished;
    LINE atomic_int caller_asleep;
} pool = {
    .owner = PTHREAD_MUTEX_INITIALIZER,
    .lock = PTHREAD_MUTEX_INITIALIZER,
    .finished = PTHREAD_COND_INITIALIZER,
};

static void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static long long nanoseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

/* Wait actively until `holds(of)`; whether it does. */
static inline int comes_soon(int (*holds)(const void *), const void *of)
{
    const long long end = nanoseconds() + PATIENCE;
    do {
        for (int i = 0; i < 32; i++) {
            if (holds(of)) return 1;
            relax();
        }
    } while (nanoseconds() < end);
    return 0;
}

/* The next block of a share, or -1. */
static long next_of(uint64_t share) { return (uint32_t)share < share >> 32 ? (long)(uint32_t)share : -1; }

static int has_block(const void *thread) { return next_of(atomic_load(&((const Thread *)thread)->share)) >= 0; }

static long take_block(Thread *thread) { return next_of(atomic_fetch_add(&thread->share, 1)); }

/* Do `block`, what is left of the thread's own share, and what is left of those of the others: how many blocks that was. */
static long do_blocks(const Job *job, int thread, long block, int *failed)
{
    const Job own = *job;
    long done = 0;
    int any_failed = 0;
    for (int i = 0; i < own.threads;) {
        if (block < 0) {
            i++;
        } else {
            any_failed |= own.work(own.argument, thread, block);
            done++;
        }
        if (i < own.threads) block = take_block(&threads[(thread + i) % own.threads]);
    }
    *failed = any_failed;
    return done;
}

static void wait_for_block(Thread *own)
{
    if (comes_soon(has_block, own)) return;
    pthread_mutex_lock(&pool.lock);
    atomic_store(&own->asleep, 1);
    while (!has_block(own)) pthread_cond_wait(&own->opened, &pool.lock);
    atomic_store(&own->asleep, 0);
    pthread_mutex_unlock(&pool.lock);
}

static void *worker(void *argument)
{
    Thread *own = argument;
    for (;;) {
        wait_for_block(own);
        const long block = take_block(own);
        if (block < 0) continue; /* others were faster */
        const long done = do_blocks(&own->job, (int)(own - threads), block, &own->failed);
        /* `done` is written before `caller_asleep` is read, and the caller does the reverse: one of them notices. */
        atomic_store(&own->done, done);
        if (atomic_load(&pool.caller_asleep)) {
            pthread_mutex_lock(&pool.lock);
            pthread_cond_signal(&pool.finished);
            pthread_mutex_unlock(&pool.lock);
        }
    }
    return NULL;
}

/* In a forked process there are no workers, and nobody who would unlock what was locked. */
static void start_again(void)
{
    memset(threads, 0, (size_t)(pool.workers + 1) * sizeof *threads);
    memset(&pool, 0, sizeof pool);
    pthread_mutex_init(&pool.owner, NULL);
    pthread_mutex_init(&pool.lock, NULL);
    pthread_cond_init(&pool.finished, NULL);
}

static void watch_forks(void) { pthread_atfork(NULL, NULL, start_again); }

/* So many workers, if they can be made; signals are left to the other threads. */
static int grown_to(int wanted)
{
    sigset_t all, before;
    if (pool.workers >= wanted) return wanted;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    for (pthread_t thread; pool.workers < wanted; pool.workers++) {
        Thread *own = &threads[pool.workers + 1];
        pthread_cond_init(&own->opened, NULL);
        if (pthread_create(&thread, NULL, worker, own)) break;
        pthread_detach(thread);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return pool.workers;
}

/* Give each thread its share, of which the caller takes block 0 without asking; and wake up those that sleep. Who falls
   asleep just now may not be noticed, and sleeps through this job. */
static void open_shares(const Job *job, long blocks)
{
    for (int i = 0; i < job->threads; i++) {
        const uint64_t first = (uint64_t)(blocks * i / job->threads), end = (uint64_t)(blocks * (i + 1) / job->threads);
        threads[i].job = *job;
        atomic_store_explicit(&threads[i].done, 0, memory_order_relaxed);
        atomic_store_explicit(&threads[i].share, end << 32 | (first ? first : 1), memory_order_release);
    }
    for (int i = 1; i < job->threads; i++) {
        if (!atomic_load_explicit(&threads[i].asleep, memory_order_relaxed)) continue;
        pthread_mutex_lock(&pool.lock);
        pthread_cond_signal(&threads[i].opened);
        pthread_mutex_unlock(&pool.lock);
    }
}

typedef struct {
    int threads;
    long blocks;
} Awaited;

static int is_done(const void *argument)
{
    const Awaited *awaited = argument;
    long done = 0;
    for (int i = 1; i < awaited->threads; i++) done += atomic_load(&threads[i].done);
    return done == awaited->blocks;
}

static void wait_for(const Awaited *awaited)
{
    if (comes_soon(is_done, awaited)) return;
    pthread_mutex_lock(&pool.lock);
    atomic_store(&pool.caller_asleep, 1);
    while (!is_done(awaited)) pthread_cond_wait(&pool.finished, &pool.lock);
    atomic_store(&pool.caller_asleep, 0);
    pthread_mutex_unlock(&pool.lock);
}

/* Call `work(argument, thread, block)` for all blocks, in up to `most` threads, numbered from 0: whether one of them failed. */
int workers_run(int most, long blocks, Work work, void *argument)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    int failed = 0;
    pthread_once(&once, watch_forks); /* before anything is locked that a forked process would find locked */
    if (most > blocks) most = (int)blocks;
    if (most > MOST_THREADS) most = MOST_THREADS;
    if (most < 2 || blocks > MOST_BLOCKS || pthread_mutex_trylock(&pool.owner)) {
        for (long block = 0; block < blocks; block++) failed |= work(argument, 0, block);
        return failed;
    }
    const Job job = {work, argument, grown_to(most - 1) + 1};
    open_shares(&job, blocks);
    const long done = do_blocks(&job, 0, 0, &failed);
    wait_for(&(Awaited){job.threads, blocks - done});
    for (int i = 1; i < job.threads; i++) failed |= threads[i].done && threads[i].failed;
    pthread_mutex_unlock(&pool.owner);
    return failed;
}
