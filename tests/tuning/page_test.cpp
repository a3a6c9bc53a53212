#include "terrace/tuning/page.hpp"

#include <gmock/gmock.h>

namespace terrace::tuning {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(Page, SaysHowItCameToBe) {
  const PageOrigin origin{.command = "terrace tune --trace 'a <b>'",
                          .build = "terrace 9.9, commit 0123456789ab",
                          .date = "2031-02-03 04:05 UTC",
                          .quick = true};
  const std::string page = html_page("Fish & chips", origin, "<p>body</p>\n");
  EXPECT_THAT(page, HasSubstr("<title>Fish &amp; chips (quick)</title>"));
  EXPECT_THAT(page, HasSubstr("<h1>Fish &amp; chips</h1>"));
  EXPECT_THAT(page, HasSubstr("<code>terrace tune --trace 'a &lt;b&gt;'</code>"));
  EXPECT_THAT(page, HasSubstr("terrace 9.9, commit 0123456789ab"));
  EXPECT_THAT(page, HasSubstr("2031-02-03 04:05 UTC"));
  EXPECT_THAT(page, HasSubstr("small sizes, which say only that it works"));
}

TEST(Page, LeavesOutWhatIsNotKnown) {
  const std::string page = html_page("Title", {}, "<p>body</p>\n");
  for (const char* const word : {"<dl>", "<dt>", "(quick)", "small sizes"}) {
    EXPECT_THAT(page, Not(HasSubstr(word))) << word;
  }
}

TEST(Page, FitsPhonesAndTheDarkAndNeedsNoNetwork) {
  const std::string page = html_page("Title", {}, "");
  EXPECT_THAT(page, HasSubstr("name=\"viewport\" content=\"width=device-width"));
  EXPECT_THAT(page, HasSubstr("prefers-color-scheme:dark"));
  for (const char* const word : {"<script", "src=", "href=", "url(", "@import", "://"}) {
    EXPECT_THAT(page, Not(HasSubstr(word))) << word;
  }
}

TEST(Page, FoldsAndScrollsTables) {
  EXPECT_THAT(folded("a & b", "<p/>"), HasSubstr("<details><summary>a &amp; b</summary>"));
  EXPECT_THAT(folded("a", "<p/>", true), HasSubstr("<details open>"));
  EXPECT_THAT(table("<tr><th>a</th></tr>", "<tr><td>1</td></tr>"),
              HasSubstr("<div class=\"scroll\"><table class=\"words2\">"));
}

}  // namespace
}  // namespace terrace::tuning
