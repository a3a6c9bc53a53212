// The engine's kernels for CUDA against its functions on the host.
#include <gmock/gmock.h>

#include <cmath>
#include <vector>

#include "cuda/cublas.hpp"
#include "engine/random_floats.hpp"
#include "terrace/core/bytes.hpp"
#include "terrace/engine/rope.hpp"
#include "terrace/engine/vector_math.hpp"
#include "terrace/offload/cuda/cuda_backend.hpp"
#include "terrace/offload/cuda/enqueue.hpp"

namespace terrace::engine {
namespace {

/// A queue of the device, and arrays in locked memory of the host, which kernels reach.
class Device {
 public:
  template <typename T>
  T* array(std::span<const T> values) {
    T* const data = array<T>(values.size());
    std::ranges::copy(values, data);
    return data;
  }
  template <typename T>
  T* array(std::size_t count) {
    arrays_.push_back(backend_->allocate({.bytes = count * sizeof(T), .tier = Tier::host}).value());
    return arrays_.back().as<T>();
  }

  /// Runs kernels(launch) to their end.
  template <typename Kernels>
  void run(Kernels kernels) {
    ASSERT_TRUE(offload::enqueue_kernels(*queue_, Phase::model, kernels).has_value());
    const Status done = queue_->drain(std::chrono::minutes{1});
    ASSERT_TRUE(done.has_value()) << done.error().message();
  }

 private:
  std::unique_ptr<Backend> backend_ = offload::CudaBackend::create({}).value();
  std::unique_ptr<Queue> queue_ = backend_->make_queue({.name = "compute"}).value();
  std::vector<Buffer> arrays_;
};

using Floats = std::span<const float>;

struct Shape {
  std::size_t rows, outputs, inputs;
};

// One row, few rows, and more rows and outputs than a tile, at no multiple of it.
constexpr Shape shapes[] = {{1, 1, 1}, {1, 700, 256}, {2, 5, 3}, {7, 300, 40}, {70, 133, 33}};

/// Holds `multiplied`(product, launch) against the host's product, over all shapes.
template <typename Multiplied>
void compare_products(Device& device, Multiplied multiplied) {
  Serial serial;
  for (const Shape& shape : shapes) {
    for (const bool accumulate : {false, true}) {
      const auto weight = random_floats(shape.outputs * shape.inputs, 1);
      const auto source = random_floats(shape.rows * shape.inputs, 2);
      std::vector<float> expected(shape.rows * shape.outputs, 3.0F);
      MatrixProduct product{.weight = weight.data(),
                            .source = source.data(),
                            .target = expected.data(),
                            .rows = shape.rows,
                            .outputs = shape.outputs,
                            .inputs = shape.inputs,
                            .accumulate = accumulate};
      multiply(product, serial);
      std::vector<float> start(expected.size(), 3.0F);
      float* const target = device.array(Floats(start));
      product.weight = device.array(Floats(weight));
      product.source = device.array(Floats(source));
      product.target = target;
      device.run([&](const auto& launch) { return multiplied(product, launch); });
      for (std::size_t i = 0; i < expected.size(); ++i) {
        ASSERT_NEAR(target[i], expected[i], 1e-5) << shape.rows << "x" << shape.outputs << " " << i;
      }
    }
  }
}

TEST(CudaMultiply, AgreesWithTheHost) {
  Device device;
  compare_products(device, [](const MatrixProduct& product, const cuda::Launch& launch) {
    return cuda::multiply(product, launch);
  });
}

TEST(Cublas, AgreesWithTheHost) {
  const std::optional<cuda::CublasFunctions> functions = cuda::load_cublas();
  if (!functions) GTEST_SKIP() << "no cuBLAS here";
  Device device;
  std::byte* const workspace = device.array<std::byte>(cuda::Cublas::workspace_bytes);
  std::unique_ptr<cuda::Cublas> cublas;
  device.run([&](const cuda::Launch& launch) -> Status {
    TERRACE_ASSIGN(cublas, cuda::Cublas::create(*functions, workspace, launch));
    return {};
  });
  compare_products(device, [&](const MatrixProduct& product, const cuda::Launch& /*launch*/) {
    return cublas->multiply(product);
  });
  device.run([&](const cuda::Launch& /*launch*/) -> Status {
    cublas.reset();
    return {};
  });
}

TEST(Cublas, SaysWhatItRefuses) {
  cuda::CublasFunctions functions{};
  functions.create = [](void** /*handle*/) { return 1; };
  const auto refused = cuda::Cublas::create(functions, nullptr, {});
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, Errc::unsupported);
}

TEST(CudaNormalise, AgreesWithTheHost) {
  Device device;
  for (const std::size_t size : {1UL, 33UL, 256UL, 577UL}) {
    constexpr std::size_t rows = 3;
    const auto source = random_floats(rows * size, 1);
    const auto weight = random_floats(size, 2);
    const cuda::Normalise op{.source = device.array(Floats(source)),
                             .weight = device.array(Floats(weight)),
                             .target = device.array<float>(rows * size),
                             .rows = rows,
                             .size = size,
                             .epsilon = 1e-5};
    device.run([&](const auto& launch) { return cuda::normalise(op, launch); });
    std::vector<float> expected(size);
    for (std::size_t row = 0; row < rows; ++row) {
      rms_norm(&source[row * size], weight.data(), size, 1e-5, expected.data());
      for (std::size_t i = 0; i < size; ++i) {
        ASSERT_NEAR(op.target[row * size + i], expected[i], 1e-5);
      }
    }
  }
}

TEST(CudaSwiglu, AgreesWithTheHost) {
  Device device;
  constexpr std::size_t rows = 5;
  constexpr std::size_t size = 71;
  const auto gate_up = random_floats(rows * 2 * size, 1, 3);
  const cuda::Swiglu op{.gate_up = device.array(Floats(gate_up)),
                        .target = device.array<float>(rows * size),
                        .rows = rows,
                        .size = size};
  device.run([&](const auto& launch) { return cuda::swiglu(op, launch); });
  std::vector<float> expected(size);
  for (std::size_t row = 0; row < rows; ++row) {
    const float* const gate = &gate_up[row * 2 * size];
    swiglu(gate, gate + size, size, expected.data());
    for (std::size_t i = 0; i < size; ++i) {
      ASSERT_NEAR(op.target[row * size + i], expected[i], 1e-5);
    }
  }
}

TEST(CudaEmbed, CopiesRowsOfTheEmbedding) {
  Device device;
  constexpr std::size_t size = 300;
  const auto embedding = random_floats(4 * size, 1);
  const std::vector<std::uint32_t> tokens{2, 0, 2, 3};
  const cuda::Embed op{.embedding = device.array(Floats(embedding)),
                       .tokens = device.array(std::span<const std::uint32_t>(tokens)),
                       .rows = tokens.size(),
                       .size = size,
                       .hidden = device.array<float>(tokens.size() * size)};
  device.run([&](const auto& launch) { return cuda::embed(op, launch); });
  for (std::size_t i = 0; i < tokens.size() * size; ++i) {
    ASSERT_EQ(op.hidden[i], embedding[tokens[i / size] * size + i % size]);
  }
}

TEST(CudaEmbed, ClearsTheFlagsOfLaterKernels) {
  Device device;
  const auto embedding = random_floats(4 * 3, 1, 1);
  const std::vector<std::uint32_t> tokens{2, 0};
  const cuda::Embed op{.embedding = device.array(Floats(embedding)),
                       .tokens = device.array(std::span<const std::uint32_t>(tokens)),
                       .rows = 2,
                       .size = 3,
                       .hidden = device.array<float>(2 * 3),
                       .flags = device.array<std::uint32_t>(301),
                       .flag_count = 300};
  std::fill_n(op.flags, 301, 1U);
  device.run([&](const auto& launch) { return cuda::embed(op, launch); });
  EXPECT_EQ(std::count(op.flags, op.flags + 300, 0U), 300);
  EXPECT_EQ(op.flags[300], 1U);
}

TEST(CudaAddBias, AddsToEachRow) {
  Device device;
  constexpr std::size_t rows = 5;
  constexpr std::size_t size = 301;
  const auto bias = random_floats(size, 1, 1);
  const auto before = random_floats(rows * size, 2, 1);
  const cuda::AddBias op{.bias = device.array(Floats(bias)),
                         .target = device.array<float>(rows * size),
                         .rows = rows,
                         .size = size};
  std::ranges::copy(before, op.target);
  device.run([&](const auto& launch) { return cuda::add_bias(op, launch); });
  for (std::size_t i = 0; i < rows * size; ++i) {
    ASSERT_EQ(op.target[i], before[i] + bias[i % size]) << i;
  }
}

/// One row of one head, all of it `number`; returns whether the flag was raised.
bool raises_flag(Dtype dtype, float number) {
  Device device;
  const KvShape shape{.layers = 1, .query_heads = 1, .kv_heads = 1, .head_dim = 4, .dtype = dtype};
  const std::vector<float> qkv(12, number);
  const std::vector<double> frequencies(2, 0.0);
  const cuda::RotateAndPack op{.shape = shape,
                               .qkv = device.array(Floats(qkv)),
                               .frequencies = device.array(std::span<const double>(frequencies)),
                               .rows = {.first_position = 0, .count = 1},
                               .query = device.array<float>(4),
                               .kv = device.array<std::byte>(shape.token_bytes()),
                               .capacity = 1,
                               .unfit = device.array<std::uint32_t>(1)};
  *op.unfit = 0;
  device.run([&](const auto& launch) { return cuda::rotate_and_pack(op, launch); });
  return *op.unfit == 1;
}

TEST(CudaRotateAndPack, RaisesAFlagForRowsThatTheirDtypeCannotHold) {
  EXPECT_FALSE(raises_flag(Dtype::f16, 65504.0F));
  EXPECT_TRUE(raises_flag(Dtype::f16, 65520.0F));
  EXPECT_FALSE(raises_flag(Dtype::bf16, 65520.0F));
  EXPECT_FALSE(raises_flag(Dtype::f32, 1e30F));
  EXPECT_TRUE(raises_flag(Dtype::f32, std::numeric_limits<float>::quiet_NaN()));
}

TEST(CudaRotateAndPack, AgreesWithTheHost) {
  Device device;
  for (const Dtype dtype : {Dtype::f32, Dtype::f16, Dtype::bf16}) {
    const KvShape shape{
        .layers = 1, .query_heads = 6, .kv_heads = 2, .head_dim = 10, .dtype = dtype};
    constexpr RowRange rows{.first_position = 30'000, .count = 3};
    constexpr std::size_t capacity = 7;
    constexpr std::size_t first = 2;
    const Rope rope({.head_dim = 10,
                     .rope_theta = 10'000,
                     .rope_scaling = YarnRopeScaling{.factor = 4, .attention_factor = 1.25}});
    RopeAngles angles = RopeAngles::create(rows.count, rope.pairs()).value();
    angles.prepare(rope, rows.first_position, rows.count);
    std::vector<double> frequencies;
    for (std::size_t i = 0; i < rope.pairs(); ++i) frequencies.push_back(rope.frequency(i));
    constexpr std::size_t row_floats = 100;  // 6 + 2 + 2 heads
    const auto qkv = random_floats(rows.count * row_floats, 1, 2);
    const std::size_t kv_bytes = capacity * shape.token_bytes();
    const cuda::RotateAndPack op{.shape = shape,
                                 .qkv = device.array(Floats(qkv)),
                                 .frequencies = device.array(std::span<const double>(frequencies)),
                                 .attention_factor = rope.attention_factor(),
                                 .rows = rows,
                                 .query = device.array<float>(rows.count * 60),
                                 .kv = device.array<std::byte>(kv_bytes),
                                 .capacity = capacity,
                                 .first = first};
    std::fill_n(op.kv, kv_bytes, std::byte{0x5a});
    device.run([&](const auto& launch) { return cuda::rotate_and_pack(op, launch); });

    std::vector<std::byte> packed(kv_bytes, std::byte{0x5a});
    std::vector<float> turned(10);
    for (std::size_t row = 0; row < rows.count; ++row) {
      for (std::size_t head = 0; head < 10; ++head) {
        const float* const source = &qkv[row * row_floats + head * 10];
        rotate_halves(source, angles.cosine(row), angles.sine(row), 5, turned.data());
        for (std::size_t i = 0; i < 10; ++i) {
          if (head < 6) {
            ASSERT_NEAR(op.query[row * 60 + head * 10 + i], turned[i], 1e-6);
            continue;
          }
          const bool is_value = head >= 8;
          const std::size_t at =
              (((head - 6) % 2 * capacity + first + row) * 2 + (is_value ? 1 : 0)) * 10 + i;
          store_f32(packed.data(), dtype, at, is_value ? source[i] : turned[i]);
        }
      }
    }
    for (std::size_t i = 0; i < kv_bytes / size_bytes(dtype); ++i) {
      // A sum of two products may round to the other of two neighbours.
      ASSERT_NEAR(load_f32(op.kv, dtype, i), load_f32(packed.data(), dtype, i),
                  dtype == Dtype::f32 ? 1e-6 : 0.02);
    }
  }
}

}  // namespace
}  // namespace terrace::engine
