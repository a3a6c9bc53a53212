#include <array>

#include "../name_lookup.hpp"
#include "rows.hpp"

namespace terrace::policies {
namespace {

constexpr std::array table{
    RetentionEntry{"recent", "the last tokens stay (StreamingLLM)", &make_recent},
    RetentionEntry{"h2o", "the tokens that drew most attention so far (H2O)", &make_h2o},
    RetentionEntry{"snapkv", "the tokens that the last queries look at (SnapKV)", &make_snapkv},
    RetentionEntry{"pyramidkv", "the same, more in the first layers (PyramidKV)", &make_pyramidkv},
    RetentionEntry{"kvcrush", "a base's tokens and representatives of the rest (KVCrush)",
                   &make_kvcrush},
    RetentionEntry{"chelsea", "tokens with keys alike become one entry (Chelsea)", &make_chelsea},
    RetentionEntry{"smartkv", "the tokens that a network expects to be looked at (SmartKV)",
                   &make_smartkv},
    RetentionEntry{"cam", "the last tokens, and values of dropped tokens added to theirs (CaM)",
                   &make_cam},
};

struct Base {
  std::string_view name;
  std::unique_ptr<Importance> (*make)(const RetentionOptions&);
};

constexpr std::array bases{Base{"h2o", &h2o_importance}, Base{"snapkv", &snapkv_importance},
                           Base{"pyramidkv", &pyramidkv_importance},
                           Base{"smartkv", &smartkv_importance}};

}  // namespace

std::span<const RetentionEntry> retention_policies() noexcept { return table; }

Result<std::unique_ptr<RetentionPolicy>> make_retention_policy(std::string_view name,
                                                               const RetentionOptions& options) {
  TERRACE_TRY(options.validate());
  TERRACE_ASSIGN(const RetentionEntry* entry,
                 find_by_name(retention_policies(), "retention.policy", name));
  return entry->make(options);
}

Result<std::unique_ptr<Importance>> make_importance(const RetentionOptions& options) {
  TERRACE_ASSIGN(const Base* base,
                 find_by_name(std::span<const Base>(bases), "retention.base", options.base));
  return base->make(options);
}

}  // namespace terrace::policies
