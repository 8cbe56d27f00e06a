"""The small C functions that operations call: activations and the mathematics behind them, in three kinds.

- portable: on floats, with `<math.h>`;
- fast on floats (`s_`) and on vectors (`v8_` and so on): without branches, from arithmetic and bit operations alone, so
  that a compiler keeps them in vector registers. Functions without such a form call `<math.h>` for each lane.

In the texts `$E` is the type of an element, `$I` its integer twin, and `@` the prefix of the names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["HELPERS", "Helper", "helper_texts"]


@dataclass(frozen=True)
class Helper:
    """The bodies of one function; `fast` is None where it is the portable one, lane by lane."""

    parameters: str
    portable: str
    fast: str | None = None


# Cody and Waite's reduction x = n log 2 + r, and a polynomial for exp(r) of relative error 1e-7; the power of two is
# applied in two halves, so that results near the ends of the range are neither infinite nor zero too early.
_EXP = """\
    const $E low = @select(x < -103.972084f, @splat(-103.972084f), x);
    const $E t = @select(low > 88.7228394f, @splat(88.7228394f), low);
    const $E scaled = t * 1.44269504f;
    const $I n = @to_int(scaled + @select(scaled < 0.0f, @splat(-0.5f), @splat(0.5f)));
    const $E k = @to_float(n);
    const $E r = (t - k * 0.693359375f) + k * 2.12194440e-4f;
    $E p = r * 1.9875691500e-4f + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    const $I half = n >> 1;
    const $E y = p * @power_of_two(half) * @power_of_two(n - half);
    const $E bounded = @select(x < -103.972084f, @splat(0.0f), y);
    return @select(x > 88.7228394f, @splat(INFINITY), bounded);"""

# erfc(|x|) = t exp(-x^2 + P(t)) with t = 1 / (1 + |x| / 2), of relative error 1.2e-7 everywhere.
_ERF = """\
    const $E z = @abs(x);
    const $E t = 1.0f / (1.0f + 0.5f * z);
    $E p = t * 0.17087277f - 0.82215223f;
    p = p * t + 1.48851587f;
    p = p * t - 1.13520398f;
    p = p * t + 0.27886807f;
    p = p * t - 0.18628806f;
    p = p * t + 0.09678418f;
    p = p * t + 0.37409196f;
    p = p * t + 1.00002368f;
    p = p * t - 1.26551223f;
    const $E y = 1.0f - t * @exp(p - z * z);
    return @select(x < 0.0f, -y, y);"""

# Near zero an odd polynomial: 1 - 2 / (exp(2x) + 1) would lose its digits there.
_TANH = """\
    const $E z = x * x;
    $E p = z * -5.70498872745e-3f + 2.06390887954e-2f;
    p = p * z - 5.37397155531e-2f;
    p = p * z + 1.33314422036e-1f;
    p = p * z - 3.33332819422e-1f;
    const $E near = x + x * z * p;
    const $E far = 1.0f - 2.0f / (@exp(x + x) + 1.0f);
    return @select(@abs(x) < 0.625f, near, far);"""

_X = "$E x"

# Comparisons are written so that a NaN stays a NaN, as in PyTorch.
HELPERS: dict[str, Helper] = {
    "abs": Helper(_X, "return fabsf(x);", "return @select(x < 0.0f, -x, x);"),
    "exp": Helper(_X, "return expf(x);", _EXP),
    "erf": Helper(_X, "return erff(x);", _ERF),
    "tanh": Helper(_X, "return tanhf(x);", _TANH),
    "sigmoid": Helper(_X, "return 1.0f / (1.0f + expf(-x));", "return 1.0f / (1.0f + @exp(-x));"),
    "where": Helper(
        "$E mask, $E yes, $E no", "return mask != 0.0f ? yes : no;", "return @select(mask != 0.0f, yes, no);"
    ),
    **{
        name: Helper(
            "$E x, $E y",
            f"return x {sign} y ? 1.0f : 0.0f;",
            f"return @select(x {sign} y, @splat(1.0f), @splat(0.0f));",
        )
        for name, sign in {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}.items()
    },
    "relu": Helper(_X, "return x < 0.0f ? 0.0f : x;", "return @select(x < 0.0f, @splat(0.0f), x);"),
    "leaky_relu": Helper(
        "$E x, float slope", "return x < 0.0f ? x * slope : x;", "return @select(x < 0.0f, x * slope, x);"
    ),
    "elu": Helper(
        "$E x, float alpha",
        "return x < 0.0f ? alpha * expm1f(x) : x;",
        "return @select(x < 0.0f, alpha * (@exp(x) - 1.0f), x);",
    ),
    "clamp": Helper(
        "$E x, float low, float high",
        "return x < low ? low : x > high ? high : x;",
        "return @select(x < low, @splat(low), @select(x > high, @splat(high), x));",
    ),
    "gelu": Helper(
        _X,
        "return 0.5f * x * (1.0f + erff(x * 0.707106781f));",
        "return 0.5f * x * (1.0f + @erf(x * 0.707106781f));",
    ),
    "gelu_tanh": Helper(
        _X,
        "return 0.5f * x * (1.0f + tanhf(0.797884561f * (x + 0.044715f * x * x * x)));",
        "return 0.5f * x * (1.0f + @tanh(0.797884561f * (x + 0.044715f * x * x * x)));",
    ),
    "silu": Helper(_X, "return x / (1.0f + expf(-x));", "return x / (1.0f + @exp(-x));"),
    "hardsigmoid": Helper(
        _X, "return @clamp(x + 3.0f, 0.0f, 6.0f) / 6.0f;", "return @clamp(x + 3.0f, 0.0f, 6.0f) / 6.0f;"
    ),
    "hardswish": Helper(
        _X, "return x * @clamp(x + 3.0f, 0.0f, 6.0f) / 6.0f;", "return x * @clamp(x + 3.0f, 0.0f, 6.0f) / 6.0f;"
    ),
    "softplus": Helper(
        "$E x, float beta, float threshold",
        "return x * beta > threshold ? x : log1pf(expf(x * beta)) / beta;",
    ),
    "log": Helper(_X, "return logf(x);"),
    "sqrt": Helper(_X, "return sqrtf(x);"),
    "rsqrt": Helper(_X, "return 1.0f / sqrtf(x);", "return 1.0f / @sqrt(x);"),
    "sin": Helper(_X, "return sinf(x);"),
    "cos": Helper(_X, "return cosf(x);"),
    "pow": Helper("$E x, float exponent", "return powf(x, exponent);"),
    "maximum": Helper(
        "$E x, $E other",
        "return x != x || x > other ? x : other;",
        "return @select(x != x, x, @select(x > other, x, other));",
    ),
    "minimum": Helper(
        "$E x, $E other",
        "return x != x || x < other ? x : other;",
        "return @select(x != x, x, @select(x < other, x, other));",
    ),
}

_PRIMITIVES = ("select", "splat", "to_int", "to_float", "power_of_two")


def helper_texts(used: Iterable[tuple[str, str]], portable: bool) -> list[str]:
    """The functions behind these (prefix, name) pairs and what they call, each after what it calls."""
    texts: dict[tuple[str, str], str] = {}

    def visit(prefix: str, name: str) -> None:
        if (prefix, name) in texts or name in _PRIMITIVES:
            return
        text = _portable_text(name) if portable else _fast_text(prefix, name)
        for needed in re.findall(r"@(\w+)\(", text):
            if needed != name:
                visit(prefix, needed)
        if prefix != "s_":
            for needed in re.findall(r"\bs_(\w+)\(", text):
                visit("s_", needed)
        texts[prefix, name] = text.replace("@", prefix)

    for prefix, name in sorted(used):
        visit(prefix, name)
    return list(texts.values())


def _portable_text(name: str) -> str:
    helper = HELPERS[name]
    parameters = helper.parameters.replace("$E", "float")
    return f"static float @{name}({parameters})\n{{\n    {helper.portable}\n}}"


def _fast_text(prefix: str, name: str) -> str:
    helper, lanes = HELPERS[name], prefix.strip("v_")
    element, integer = ("float", "int32_t") if prefix == "s_" else (f"V{lanes}", f"I{lanes}")
    body = helper.fast or helper.portable
    if helper.fast is None and prefix != "s_":
        rest = "".join(f", {parameter.split()[-1]}" for parameter in helper.parameters.split(",")[1:])
        call = f"s_{name}(x[lane]{rest})"
        body = f"$E y;\n    for (int lane = 0; lane < {lanes}; lane++) y[lane] = {call};\n    return y;"
    text = body if body.startswith(" ") else f"    {body}"
    head = f"static inline $E @{name}({helper.parameters})"
    return f"{head}\n{{\n{text}\n}}".replace("$E", element).replace("$I", integer)
