/* Vectors of $L floats: `U$L` is one at any address. */

typedef float V$L __attribute__((vector_size(4 * $L)));
typedef float U$L __attribute__((vector_size(4 * $L), aligned(4), may_alias));
typedef int32_t I$L __attribute__((vector_size(4 * $L)));

INLINE V$L v$L_load(const float *from) { return *(const U$L *)from; }
INLINE void v$L_store(float *to, V$L x) { *(U$L *)to = x; }
INLINE V$L v$L_splat(float x) { return x - (V$L){0}; }
INLINE V$L v$L_select(I$L mask, V$L yes, V$L no) { return (V$L)((mask & (I$L)yes) | (~mask & (I$L)no)); }
INLINE I$L v$L_to_int(V$L x) { return __builtin_convertvector(x, I$L); }
INLINE V$L v$L_to_float(I$L x) { return __builtin_convertvector(x, V$L); }
INLINE V$L v$L_power_of_two(I$L n) { return (V$L)((n + 127) << 23); }

/* The first `n` places of a vector, or all of them. */
INLINE void v$L_store_some(float *to, V$L x, int n)
{
    if (n >= $L) {
        v$L_store(to, x);
        return;
    }
    for (int lane = 0; lane < n; lane++) to[lane] = x[lane];
}

INLINE void v$L_scatter(float *to, int step, V$L x, int n)
{
    for (int lane = 0; lane < (n < $L ? n : $L); lane++) to[lane * step] = x[lane];
}

/* $L rows of $L floats, turned over: interleave the two halves of the rows, log2($L) times. */
INLINE void v$L_transpose(V$L *rows)
{
    for (int round = 1; round < $L; round *= 2) {
        V$L mixed[$L];
        for (int i = 0; i < $L / 2; i++) {
            mixed[2 * i] = __builtin_shufflevector(rows[i], rows[i + $L / 2], $LOW);
            mixed[2 * i + 1] = __builtin_shufflevector(rows[i], rows[i + $L / 2], $HIGH);
        }
        memcpy(rows, mixed, sizeof mixed);
    }
}

/* `count` elements of each sample, `apart` floats from one sample to the next, as vectors; missing samples repeat. */
INLINE void v$L_pack_row(const float *from, long apart, int n, int count, V$L *to)
{
    int i = 0;
    for (; i + $L <= count; i += $L) {
        V$L rows[$L];
        for (int lane = 0; lane < $L; lane++) rows[lane] = v$L_load(from + (lane < n ? lane : 0) * apart + i);
        v$L_transpose(rows);
        for (int lane = 0; lane < $L; lane++) to[i + lane] = rows[lane];
    }
    for (; i < count; i++) {
        for (int lane = 0; lane < $L; lane++) to[i][lane] = from[(lane < n ? lane : 0) * apart + i];
    }
}

INLINE void v$L_pack(
    const float *from, long apart, int n, int planes, int rows, int columns, int plane, int pitch, V$L *to)
{
    for (int p = 0; p < planes; p++) {
        for (int r = 0; r < rows; r++) {
            v$L_pack_row(from + (p * rows + r) * columns, apart, n, columns, to + p * plane + r * pitch);
        }
    }
}

INLINE void v$L_unpack(const V$L *from, int count, int n, float *to)
{
    int i = 0;
    for (; i + $L <= count; i += $L) {
        V$L rows[$L];
        for (int lane = 0; lane < $L; lane++) rows[lane] = from[i + lane];
        v$L_transpose(rows);
        for (int lane = 0; lane < n; lane++) v$L_store(to + (long)lane * count + i, rows[lane]);
    }
    for (; i < count; i++) {
        for (int lane = 0; lane < n; lane++) to[(long)lane * count + i] = from[i][lane];
    }
}
