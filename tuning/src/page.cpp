#include "terrace/tuning/page.hpp"

#include <fmt/core.h>

namespace terrace::tuning {
namespace {

constexpr std::string_view style = R"(
:root{color-scheme:light dark;--page:#fff;--ink:#1b1f24;--soft:#59636e;--line:#d9dee3;
--fold:#f4f6f8;--best:#e3f3e8;--warn:#fff1c7}
@media(prefers-color-scheme:dark){:root{--page:#14181d;--ink:#e3e7ec;--soft:#9aa5b1;--line:#38414b;
--fold:#1d232a;--best:#1d3a29;--warn:#4a3d12}}
*{box-sizing:border-box}
body{margin:0 auto;padding:1.2rem clamp(.9rem,2.5vw,2.5rem) 3rem;max-width:1760px;
background:var(--page);color:var(--ink);font:15px/1.5 system-ui,sans-serif}
h1{font-size:1.6rem;line-height:1.2;margin:.2rem 0 .7rem}
h2{font-size:1.2rem;line-height:1.25;margin:1.8rem 0 .5rem;overflow-wrap:anywhere}
p{max-width:80ch;margin:.6rem 0}
dl{display:grid;grid-template-columns:max-content 1fr;gap:.1rem .9rem;margin:.6rem 0 1rem;
font-size:13px}
dt{color:var(--soft)}dd{margin:0;min-width:0;overflow-wrap:anywhere}
code,pre{font:13px/1.45 ui-monospace,monospace}
pre{background:var(--fold);border:1px solid var(--line);border-radius:8px;padding:.7rem .9rem;
margin:.6rem 0;overflow-x:auto}
.quick{background:var(--warn);padding:.45rem .8rem;border-radius:8px;width:fit-content}
.charts{display:flex;flex-wrap:wrap;gap:1rem;margin:1rem 0}
figure{margin:0;padding:.8rem;border:1px solid var(--line);border-radius:8px;min-width:0;
flex:1 1 340px;max-width:500px;break-inside:avoid}
figcaption{font-weight:600;margin-bottom:.4rem}
figure>svg{display:block;width:100%;height:auto}
svg text{font:13px system-ui,sans-serif;fill:var(--ink)}svg text.soft{fill:var(--soft)}
svg .grid{stroke:var(--line)}svg .axis{stroke:var(--soft)}svg .mark{stroke:var(--ink)}
svg .hollow{fill:var(--page)}
.legend{display:flex;flex-wrap:wrap;gap:.1rem .9rem;list-style:none;padding:0;margin:.5rem 0 0;
font-size:12.5px}
.legend svg{width:26px;height:12px;vertical-align:-1px;margin-right:.35rem}
details{border:1px solid var(--line);border-radius:8px;margin:1rem 0;overflow:hidden}
summary{cursor:pointer;padding:.5rem .8rem;font-weight:600;background:var(--fold)}
details>p{margin:.6rem .8rem}details>pre{margin:.6rem .8rem}
.scroll{overflow:auto;max-height:85vh}
table{border-collapse:collapse;width:100%;font-size:13px;font-variant-numeric:tabular-nums}
td,th{padding:.25rem .7rem;text-align:right;white-space:nowrap;border-bottom:1px solid var(--line)}
th{position:sticky;top:0;background:var(--fold)}
table.words1 :is(td,th):first-child,table.words2 :is(td,th):nth-child(-n+2){text-align:left}
.best{font-weight:600;background:var(--best)}
@media print{.scroll{max-height:none;overflow:visible}}
)";

std::string fact(std::string_view name, std::string_view value) {
  if (value.empty()) return {};
  return fmt::format("<dt>{}</dt><dd>{}</dd>\n", name, value);
}

std::string facts(const PageOrigin& origin) {
  const std::string command =
      origin.command.empty() ? "" : fmt::format("<code>{}</code>", escaped(origin.command));
  const std::string list = fact("command", command) + fact("program", escaped(origin.build)) +
                           fact("date", escaped(origin.date));
  return list.empty() ? list : fmt::format("<dl>\n{}</dl>\n", list);
}

}  // namespace

std::string escaped(std::string_view text) {
  std::string safe;
  for (const char c : text) {
    switch (c) {
      case '<':
        safe += "&lt;";
        break;
      case '>':
        safe += "&gt;";
        break;
      case '&':
        safe += "&amp;";
        break;
      case '"':
        safe += "&quot;";
        break;
      default:
        safe += c;
    }
  }
  return safe;
}

std::string html_page(std::string_view title, const PageOrigin& origin, std::string_view body) {
  constexpr std::string_view quick =
      "<p class=\"quick\"><b>quick</b>: small sizes, which say only that it works</p>\n";
  return fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
      "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">"
      "<title>{0}{1}</title><style>{2}</style></head><body>\n<h1>{0}</h1>\n{3}{4}{5}"
      "</body></html>\n",
      escaped(title), origin.quick ? " (quick)" : "", style, origin.quick ? quick : "",
      facts(origin), body);
}

std::string side_by_side(std::string_view drawings) {
  return fmt::format("<div class=\"charts\">\n{}</div>\n", drawings);
}

std::string folded(std::string_view summary, std::string_view body, bool open) {
  return fmt::format("<details{}><summary>{}</summary>\n{}</details>\n", open ? " open" : "",
                     escaped(summary), body);
}

std::string table(std::string_view head, std::string_view rows, int word_columns) {
  return fmt::format(
      "<div class=\"scroll\"><table class=\"words{}\"><thead>{}</thead>\n<tbody>\n{}</tbody>"
      "</table></div>\n",
      word_columns, head, rows);
}

std::string preformatted(std::string_view text) {
  return fmt::format("<pre>{}</pre>\n", escaped(text));
}

}  // namespace terrace::tuning
