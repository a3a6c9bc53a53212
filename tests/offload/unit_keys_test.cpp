#include "terrace/offload/unit_keys.hpp"

#include <gmock/gmock.h>

#include <map>
#include <set>

#include "contract/fuzz.hpp"
#include "terrace/core/rng.hpp"

namespace terrace::offload {
namespace {

TEST(UnitKeys, SaysWhenAllAreTaken) {
  UnitKeys keys(1);
  ASSERT_TRUE(keys.acquire(SequenceId{1}, BlockId{0}));
  EXPECT_TRUE(keys.acquire(SequenceId{1}, BlockId{0}));
  EXPECT_EQ(keys.acquire(SequenceId{1}, BlockId{1}).error().code, Errc::out_of_memory);
}

TEST(UnitKeys, AreDenseUniqueAndUsedAgainUnderRandomUse) {
  constexpr std::size_t capacity = 60;
  const std::uint64_t seed = fuzz_seed(5);
  Rng rng(seed);
  UnitKeys keys(capacity);
  std::map<std::pair<std::uint64_t, std::uint32_t>, UnitKey> model;
  for (std::uint64_t step = 0; step < fuzz_steps(); ++step) {
    SCOPED_TRACE(replay(seed, step));
    const std::uint64_t sequence = rng.below(4);
    const auto block = static_cast<std::uint32_t>(rng.below(30));
    const auto known = model.find({sequence, block});
    if (rng.below(10) != 0) {
      const auto key = keys.acquire(SequenceId{sequence}, BlockId{block});
      ASSERT_EQ(key.has_value(), known != model.end() || model.size() < capacity);
      if (!key) continue;
      ASSERT_LT(*key, capacity);
      ASSERT_TRUE(known == model.end() || known->second == *key);
      model[{sequence, block}] = *key;
    } else {
      std::set<UnitKey> released;
      keys.release(SequenceId{sequence}, BlockId{block},
                   [&](UnitKey key) { released.insert(key); });
      std::erase_if(model, [&](const auto& entry) {
        if (entry.first.first != sequence || entry.first.second < block) return false;
        EXPECT_TRUE(released.contains(entry.second));
        return true;
      });
    }
    ASSERT_EQ(keys.in_use(), model.size());
    const auto found = keys.find(SequenceId{sequence}, BlockId{block});
    ASSERT_EQ(found.has_value(), model.contains({sequence, block}));
  }
}

}  // namespace
}  // namespace terrace::offload
