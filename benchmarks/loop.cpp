// Constant SGD written out by hand: the practical limit of one core. Never part of the package.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

namespace {

struct Generator {  // xoshiro128++ with Lemire's bounded integers
    uint32_t s[4];
    explicit Generator(uint64_t seed) {
        for (auto& word : s) {
            seed += 0x9e3779b97f4a7c15ull;
            uint64_t z = seed;
            z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
            z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
            word = static_cast<uint32_t>((z ^ (z >> 31)) >> 32);
        }
    }
    static uint32_t turn(uint32_t x, int k) { return (x << k) | (x >> (32 - k)); }
    uint32_t next() {
        const uint32_t result = turn(s[0] + s[3], 7) + s[0], t = s[1] << 9;
        s[2] ^= s[0]; s[3] ^= s[1]; s[1] ^= s[2]; s[0] ^= s[3]; s[2] ^= t; s[3] = turn(s[3], 11);
        return result;
    }
    uint32_t below(uint32_t n) { return static_cast<uint32_t>((static_cast<uint64_t>(next()) * n) >> 32); }
};

}  // namespace

// family: 0 linear, 1 logistic. theta is updated in place.
extern "C" void scalar_sgd(int family, const float* x, const float* y, int64_t rows, int columns, int batch,
                           float step, float prior, int64_t steps, uint64_t seed, float* theta) {
    Generator generator(seed);
    std::vector<float> gradient(columns);
    for (int64_t t = 0; t < steps; ++t) {
        std::fill(gradient.begin(), gradient.end(), 0.0f);
        for (int b = 0; b < batch; ++b) {
            const int64_t n = generator.below(static_cast<uint32_t>(rows));
            const float* row = x + n * columns;
            float predictor = 0.0f;
            for (int d = 0; d < columns; ++d) predictor += row[d] * theta[d];
            const float mean = family == 0 ? predictor : 1.0f / (1.0f + std::exp(-predictor));
            const float residual = mean - y[n];
            for (int d = 0; d < columns; ++d) gradient[d] += residual * row[d];
        }
        for (int d = 0; d < columns; ++d) theta[d] -= step * (gradient[d] / batch + prior * theta[d]);
    }
}

// theta is (columns, classes), row-major.
extern "C" void softmax_sgd(const float* x, const int32_t* y, int64_t rows, int columns, int classes, int batch,
                            float step, float prior, int64_t steps, uint64_t seed, float* theta) {
    Generator generator(seed);
    std::vector<float> gradient(static_cast<size_t>(columns) * classes), logits(classes);
    for (int64_t t = 0; t < steps; ++t) {
        std::fill(gradient.begin(), gradient.end(), 0.0f);
        for (int b = 0; b < batch; ++b) {
            const int64_t n = generator.below(static_cast<uint32_t>(rows));
            const float* row = x + n * columns;
            std::fill(logits.begin(), logits.end(), 0.0f);
            for (int d = 0; d < columns; ++d)
                for (int k = 0; k < classes; ++k) logits[k] += row[d] * theta[d * classes + k];
            float largest = logits[0], total = 0.0f;
            for (int k = 1; k < classes; ++k) largest = std::max(largest, logits[k]);
            for (int k = 0; k < classes; ++k) total += logits[k] = std::exp(logits[k] - largest);
            for (int k = 0; k < classes; ++k) logits[k] = logits[k] / total - (k == y[n] ? 1.0f : 0.0f);
            for (int d = 0; d < columns; ++d)
                for (int k = 0; k < classes; ++k) gradient[d * classes + k] += row[d] * logits[k];
        }
        const int size = columns * classes;
        for (int j = 0; j < size; ++j) theta[j] -= step * (gradient[j] / batch + prior * theta[j]);
    }
}
