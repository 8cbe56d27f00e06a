/* What the compiled runtime builds on. */

#include <math.h>
#include <stdint.h>
#include <string.h>

/* How a network is run: its weights; from how many samples on the rest of a batch is computed as one vector; how many
   threads there may be, how many samples are worth a thread, and what runs blocks of samples in threads (workers.c). */
typedef struct {
    const char *constants;
    long vector_from;
    long threads;
    long samples_per_thread;
    int (*run_in_threads)(int threads, long blocks, int (*work)(void *job, int thread, long block), void *job);
} Settings;

/* Functions that not every network calls. */
#define INLINE static inline __attribute__((unused))

/* Keep a pointer in one register: an address of a single register costs less than one of two. */
#define PIN(pointer) __asm__("" : "+r"(pointer))

INLINE float s_splat(float x) { return x; }
INLINE float s_select(int mask, float yes, float no) { return mask ? yes : no; }
INLINE int32_t s_to_int(float x) { return (int32_t)x; }
INLINE float s_to_float(int32_t x) { return (float)x; }
INLINE float s_power_of_two(int32_t n)
{
    const int32_t bits = (n + 127) * (1 << 23);
    float x;
    memcpy(&x, &bits, 4);
    return x;
}
