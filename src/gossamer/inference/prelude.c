/* What the compiled runtime builds on: vectors of LANES floats, and the change between samples and lanes. */

#include <math.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>

typedef float V __attribute__((vector_size(4 * LANES)));
typedef float U __attribute__((vector_size(4 * LANES), aligned(4), may_alias)); /* at any address */
typedef int32_t I __attribute__((vector_size(4 * LANES)));

#define LOAD(pointer) (*(const U *)(pointer))
#define STORE(pointer, value) (*(U *)(pointer) = (value))

/* Keep a pointer in one register: an address of a single register costs less than one of two. */
#define PIN(pointer) __asm__("" : "+r"(pointer))

static inline V v_splat(float x) { return x - (V){0}; }
static inline V v_select(I mask, V yes, V no) { return (V)((mask & (I)yes) | (~mask & (I)no)); }
static inline I v_to_int(V x) { return __builtin_convertvector(x, I); }
static inline V v_to_float(I x) { return __builtin_convertvector(x, V); }
static inline V v_power_of_two(I n) { return (V)((n + 127) << 23); }

static inline float s_splat(float x) { return x; }
static inline float s_select(int mask, float yes, float no) { return mask ? yes : no; }
static inline int32_t s_to_int(float x) { return (int32_t)x; }
static inline float s_to_float(int32_t x) { return (float)x; }
static inline float s_power_of_two(int32_t n)
{
    const int32_t bits = (n + 127) * (1 << 23);
    float x;
    memcpy(&x, &bits, 4);
    return x;
}

/* The first `n` places of a vector, or all of them. */
static inline void v_store_some(float *to, V x, int n)
{
    if (n >= LANES) {
        STORE(to, x);
        return;
    }
    for (int lane = 0; lane < n; lane++) to[lane] = x[lane];
}

static inline void v_scatter(float *to, int step, V x, int n)
{
    for (int lane = 0; lane < (n < LANES ? n : LANES); lane++) to[lane * step] = x[lane];
}

/* LANES rows of LANES floats, turned over: interleave the two halves of the rows, as often as LANES has halves. */
static inline void v_transpose(V *rows)
{
    for (int round = 1; round < LANES; round *= 2) {
        V mixed[LANES];
        for (int i = 0; i < LANES / 2; i++) {
            mixed[2 * i] = v_interleave_low(rows[i], rows[i + LANES / 2]);
            mixed[2 * i + 1] = v_interleave_high(rows[i], rows[i + LANES / 2]);
        }
        memcpy(rows, mixed, sizeof mixed);
    }
}

/* `count` elements of each sample, `apart` floats from one sample to the next, as vectors; missing samples repeat. */
static inline void v_pack_row(const float *from, long apart, int n, int count, V *to)
{
    int i = 0;
    for (; i + LANES <= count; i += LANES) {
        V rows[LANES];
        for (int lane = 0; lane < LANES; lane++) rows[lane] = LOAD(from + (lane < n ? lane : 0) * apart + i);
        v_transpose(rows);
        for (int lane = 0; lane < LANES; lane++) to[i + lane] = rows[lane];
    }
    for (; i < count; i++) {
        for (int lane = 0; lane < LANES; lane++) to[i][lane] = from[(lane < n ? lane : 0) * apart + i];
    }
}

static void v_pack(const float *from, long apart, int n, int planes, int rows, int columns, int plane, int pitch, V *to)
{
    for (int p = 0; p < planes; p++) {
        for (int r = 0; r < rows; r++) {
            v_pack_row(from + (p * rows + r) * columns, apart, n, columns, to + p * plane + r * pitch);
        }
    }
}

static void v_unpack(const V *from, int count, int n, float *to)
{
    int i = 0;
    for (; i + LANES <= count; i += LANES) {
        V rows[LANES];
        for (int lane = 0; lane < LANES; lane++) rows[lane] = from[i + lane];
        v_transpose(rows);
        for (int lane = 0; lane < n; lane++) STORE(to + (long)lane * count + i, rows[lane]);
    }
    for (; i < count; i++) {
        for (int lane = 0; lane < n; lane++) to[(long)lane * count + i] = from[i][lane];
    }
}
