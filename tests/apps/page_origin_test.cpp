#include "page_origin.hpp"

#include <gmock/gmock.h>

#include <vector>

#include "terrace/core/version.hpp"

namespace terrace::apps {
namespace {

using testing::EndsWith;
using testing::HasSubstr;

TEST(SpellCommand, QuotesWhatAShellWouldTakeApart) {
  const std::vector<std::string> arguments{
      "/usr/bin/terrace", "run", "--text", "my text", "it's", "", "--set", "seed=1"};
  EXPECT_EQ(spell_command(arguments), "terrace run --text 'my text' 'it'\\''s' '' --set seed=1");
  EXPECT_EQ(spell_command({}), "");
}

TEST(SpellCommand, LeavesOutPasswords) {
  const std::vector<std::string> arguments{"terrace", "--set",
                                           "tier.remote.url=redis://me:secret@host:6379"};
  const std::string line = spell_command(arguments);
  EXPECT_THAT(line, testing::Not(HasSubstr("secret")));
  EXPECT_THAT(line, HasSubstr("@host:6379"));
}

TEST(PageOrigin, IsOfThisProcess) {
  const tuning::PageOrigin origin = page_origin(/*quick=*/true);
  EXPECT_THAT(origin.command, testing::StartsWith("apps_test"));
  EXPECT_THAT(origin.build, HasSubstr(version()));
  EXPECT_THAT(origin.build, EndsWith(build_info().commit));
  EXPECT_THAT(origin.date, testing::MatchesRegex("20[0-9]+-[0-9]+-[0-9]+ [0-9]+:[0-9]+ UTC"));
  EXPECT_TRUE(origin.quick);
}

}  // namespace
}  // namespace terrace::apps
