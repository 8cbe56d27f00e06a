/* Threads that stay: a job is a number of blocks, and whoever is free takes the next one.

   The caller of `workers_run` works as well, and opens places in its job for so many others. A worker that finds a place
   takes it, which makes it a part of the job until no block is left. When the caller finds no block, it closes the places
   that nobody has taken and waits for those who have: a worker that is slow to wake up is never waited for.

   There is one job at a time. Who calls meanwhile does its work alone, as does a caller for whom no thread can be made.
   Workers wait for the next job actively for a moment, then asleep. A forked process has none, and makes its own. */

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

typedef int (*Work)(void *job, int thread, long block);

/* Nanoseconds of waiting actively: a few calls from Python, and what it takes to wake a thread up. */
#define PATIENCE 50000

#define LINE _Alignas(64)

static struct {
    LINE pthread_mutex_t owner; /* held by the caller whose job it is */
    int workers;
    Work work; /* written by the owner while there is no place, read by those who have one */
    void *job;
    long blocks;
    LINE atomic_long next;  /* block */
    LINE atomic_int places; /* for workers in the job that are not taken */
    LINE atomic_int left;   /* workers that had a place */
    atomic_int failed;
    LINE pthread_mutex_t lock; /* of both conditions */
    pthread_cond_t opened, finished;
    atomic_int asleep; /* workers */
    atomic_int caller_asleep;
} pool = {
    .owner = PTHREAD_MUTEX_INITIALIZER,
    .lock = PTHREAD_MUTEX_INITIALIZER,
    .opened = PTHREAD_COND_INITIALIZER,
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

/* Wait actively until `counter` is `wanted`, or anything but zero if `wanted` is 0; whether it is. */
static int comes_soon(atomic_int *counter, int wanted)
{
    const long long end = nanoseconds() + PATIENCE;
    do {
        for (int i = 0; i < 32; i++) {
            const int found = atomic_load(counter);
            if (wanted ? found == wanted : found != 0) return 1;
            relax();
        }
    } while (nanoseconds() < end);
    return 0;
}

static int do_blocks(int thread)
{
    int failed = 0;
    for (;;) {
        const long block = atomic_fetch_add_explicit(&pool.next, 1, memory_order_relaxed);
        if (block >= pool.blocks) return failed;
        failed |= pool.work(pool.job, thread, block);
    }
}

/* The number of the place that was taken, from 1 on. */
static int take_place(void)
{
    for (;;) {
        if (!comes_soon(&pool.places, 0)) {
            pthread_mutex_lock(&pool.lock);
            /* `asleep` is written before `places` is read, and the caller does the reverse: one of them notices. */
            atomic_fetch_add(&pool.asleep, 1);
            while (atomic_load(&pool.places) == 0) pthread_cond_wait(&pool.opened, &pool.lock);
            atomic_fetch_sub(&pool.asleep, 1);
            pthread_mutex_unlock(&pool.lock);
        }
        int places = atomic_load(&pool.places);
        while (places > 0) {
            if (atomic_compare_exchange_weak(&pool.places, &places, places - 1)) return places;
        }
    }
}

static void *worker(void *unused)
{
    (void)unused;
    for (;;) {
        if (do_blocks(take_place())) atomic_store(&pool.failed, 1);
        atomic_fetch_add(&pool.left, 1);
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
    memset(&pool, 0, sizeof pool);
    pthread_mutex_init(&pool.owner, NULL);
    pthread_mutex_init(&pool.lock, NULL);
    pthread_cond_init(&pool.opened, NULL);
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
        if (pthread_create(&thread, NULL, worker, NULL)) break;
        pthread_detach(thread);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return pool.workers;
}

static void open_places(int places)
{
    atomic_store(&pool.places, places);
    if (atomic_load(&pool.asleep) == 0) return;
    pthread_mutex_lock(&pool.lock);
    for (int i = 0; i < places; i++) pthread_cond_signal(&pool.opened);
    pthread_mutex_unlock(&pool.lock);
}

static void wait_for(int joined)
{
    if (joined == 0 || comes_soon(&pool.left, joined)) return;
    pthread_mutex_lock(&pool.lock);
    atomic_store(&pool.caller_asleep, 1);
    while (atomic_load(&pool.left) != joined) pthread_cond_wait(&pool.finished, &pool.lock);
    atomic_store(&pool.caller_asleep, 0);
    pthread_mutex_unlock(&pool.lock);
}

/* Call `work(job, thread, block)` for all blocks, in up to `threads` threads, numbered from 0: whether one of them failed. */
int workers_run(int threads, long blocks, Work work, void *job)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    int failed = 0;
    pthread_once(&once, watch_forks); /* before anything is locked that a forked process would find locked */
    if (threads < 2 || blocks < 2 || pthread_mutex_trylock(&pool.owner)) {
        for (long block = 0; block < blocks; block++) failed |= work(job, 0, block);
        return failed;
    }
    const int places = grown_to((threads < blocks ? threads : (int)blocks) - 1);
    pool.work = work;
    pool.job = job;
    pool.blocks = blocks;
    atomic_store(&pool.next, 0);
    atomic_store(&pool.left, 0);
    atomic_store(&pool.failed, 0);
    open_places(places);
    failed = do_blocks(0);
    wait_for(places - atomic_exchange(&pool.places, 0));
    failed |= atomic_load(&pool.failed);
    pthread_mutex_unlock(&pool.owner);
    return failed;
}
