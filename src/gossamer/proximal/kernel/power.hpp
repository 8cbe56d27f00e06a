// m^e = 2^(e log2 m) in double precision, in a form that compilers can vectorize.
//
// log2: m = 2^n f with f in [sqrt(1/2), sqrt(2)), and log f = 2 artanh z with z = (f - 1) / (f + 1), |z| < 0.1716, by its
// power series. exp2: the nearest integer becomes the exponent, the rest, at most 1/2, goes into the power series of exp. The
// relative error is about 1e-15 for |e log2 m| < 50 and grows with it.

#pragma once

#include <cstdint>
#include <cstring>

namespace gossamer {

inline double from_bits(uint64_t bits) {
    double x;
    std::memcpy(&x, &bits, sizeof x);
    return x;
}

inline uint64_t to_bits(double x) {
    uint64_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    return bits;
}

constexpr double two_52 = 4503599627370496.0;  // doubles from here on are integers

// x > 0 and not subnormal
inline double log2_of(double x) {
    const uint64_t bits = to_bits(x), shift = 0x3FE6A09E667F3BCDull;  // of sqrt(1/2)
    const uint64_t exponent = (bits - shift + 0x0010000000000000ull * 1024) >> 52;  // of x / sqrt(1/2), above 0
    const double f = from_bits(bits - ((exponent - 1024) << 52));
    const double n = from_bits(exponent | 0x4330000000000000ull) - (two_52 + 1024);
    const double z = (f - 1) / (f + 1), y = z * z;
    constexpr int terms = 11;
    double sum = 1.0 / (2 * terms + 1);
#pragma GCC unroll 16
    for (int i = terms - 1; i >= 0; --i) sum = sum * y + 1.0 / (2 * i + 1);
    return n + 2.8853900817779268147 * z * sum;  // 2 / log 2
}

// |x| < 1000
inline double exp2_of(double x) {
    const double shifted = x + 1.5 * two_52;
    const double n = shifted - 1.5 * two_52, rest = (x - n) * 0.69314718055994530942;
    constexpr int terms = 13;
    double sum = 1;
#pragma GCC unroll 16
    for (int i = terms; i > 0; --i) sum = sum * rest * (1.0 / i) + 1;
    return sum * from_bits((to_bits(shifted) + 1023) << 52);
}

inline double power(double m, double exponent) {
    const double x = exponent * log2_of(m);
    return exp2_of(x < -1000 ? -1000 : x > 1000 ? 1000 : x);
}

}  // namespace gossamer
