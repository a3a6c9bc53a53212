// Requests of objects, as libCacheSim writes them down.
#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "imported_requests.hpp"
#include "line_reader.hpp"
#include "terrace/tuning/import.hpp"

namespace terrace::tuning {
namespace {

constexpr std::uint64_t size_max = std::numeric_limits<std::uint32_t>::max();

/// Writes each request as a step.
template <typename Id>
class ObjectWriter {
 public:
  static Result<ObjectWriter> create(const Conversion& files, const char* form,
                                     const ObjectOptions& options) {
    TERRACE_ASSIGN(TraceWriter writer,
                   TraceWriter::create(files.target, requests_head(form, /*block_tokens=*/1)));
    return ObjectWriter(std::move(writer), options.ignore_sizes);
  }

  /// Returns what is wrong; empty where nothing is.
  std::string append(const Id& id, std::uint64_t size) {
    const auto rows =
        ignore_sizes_ ? 1U : static_cast<std::uint32_t>(std::max<std::uint64_t>(1, size));
    record_.units.assign(1, {.unit = numbers_.of(id), .rows = rows, .size_rows = rows});
    record_.position = numbers_.size();
    if (std::string many = numbers_.flaw(); !many.empty()) return many;
    append_request(writer_, record_);
    return {};
  }

  Status finish(const std::string& name) {
    if (numbers_.size() == 0) return fail(Errc::corrupt, "{}: holds no request", name);
    return writer_.finish(std::nullopt);
  }

 private:
  ObjectWriter(TraceWriter writer, bool ignore_sizes)
      : writer_(std::move(writer)), ignore_sizes_(ignore_sizes) {}

  TraceWriter writer_;
  bool ignore_sizes_;
  UnitNumbers<Id> numbers_;
  TraceRecord record_;
};

void tell(const Conversion& files, std::optional<double> share) {
  if (share && files.progress) files.progress(*share);
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view blanks = " \t";
  text.remove_prefix(std::min(text.find_first_not_of(blanks), text.size()));
  const std::size_t last = text.find_last_not_of(blanks);
  return text.substr(0, last == std::string_view::npos ? 0 : last + 1);
}

/// The whole of a text as a whole number from 0 on.
std::optional<std::uint64_t> number_of(std::string_view text) {
  const char* const end = text.data() + text.size();
  std::uint64_t whole = 0;
  if (const auto read = std::from_chars(text.data(), end, whole);
      read.ec == std::errc{} && read.ptr == end && !text.empty()) {
    return whole;
  }
  double value = 0;
  const auto read = std::from_chars(text.data(), end, value);
  const bool all = read.ec == std::errc{} && read.ptr == end;
  return all ? whole_number(value) : std::nullopt;
}

bool is_number(std::string_view text) {
  double value = 0;
  const char* const end = text.data() + text.size();
  return !text.empty() && std::from_chars(text.data(), end, value).ptr == end;
}

/// Cuts lines of csv into fields.
class CsvFields {
 public:
  /// Takes the delimiter from a first line: what cuts it into the most fields.
  explicit CsvFields(std::string_view first) {
    std::ptrdiff_t most = 0;
    for (const char each : std::string_view(",\t|;")) {
      const std::ptrdiff_t count = std::ranges::count(first, each);
      if (count > most) delimiter_ = each;
      most = std::max(most, count);
    }
  }

  /// Returns what is wrong; empty where nothing is.
  std::string cut(std::string_view line) {
    fields_.clear();
    for (std::size_t begin = 0; begin <= line.size();) {
      const std::size_t end = std::min(line.find(delimiter_, begin), line.size());
      std::string_view field = trimmed(line.substr(begin, end - begin));
      if (field.starts_with('"')) {
        if (field.size() < 2 || !field.ends_with('"')) {
          return "a field has a quote at one end; fields with the delimiter in them are not read";
        }
        field = field.substr(1, field.size() - 2);
      }
      fields_.push_back(field);
      begin = end + 1;
    }
    return {};
  }

  /// The field of a column, from 1; empty if the line has no such column.
  [[nodiscard]] std::string_view column(std::size_t number) const {
    return number <= fields_.size() ? fields_[number - 1] : std::string_view();
  }
  [[nodiscard]] std::size_t count() const noexcept { return fields_.size(); }
  [[nodiscard]] bool are_names() const { return std::ranges::none_of(fields_, is_number); }

 private:
  char delimiter_ = ',';
  std::vector<std::string_view> fields_;
};

/// Appends the request of a line. Returns what is wrong; empty where nothing is.
std::string append_line(const CsvFields& fields, const ObjectOptions& options,
                        ObjectWriter<std::string>& writer) {
  const std::string_view id = fields.column(options.id_column);
  if (id.empty()) {
    return fmt::format("no obj_id in column {} of {}; say with --obj-id-col where it is",
                       options.id_column, fields.count());
  }
  if (options.ignore_sizes) return writer.append(std::string(id), 1);
  const auto size = number_of(fields.column(options.size_column));
  if (!size || *size > size_max) {
    return fmt::format(
        "obj_size in column {} of {} is no whole number up to {}; say with --obj-size-col where it "
        "is, or give --ignore-obj-size",
        options.size_column, fields.count(), size_max);
  }
  return writer.append(std::string(id), *size);
}

constexpr std::size_t record_bytes = 24;

template <typename Number>
Number little_endian(const unsigned char* bytes) {
  Number number = 0;
  for (std::size_t i = sizeof number; i-- > 0;) {
    number = static_cast<Number>(number << 8U) | static_cast<Number>(bytes[i]);
  }
  return number;
}

/// Appends the request of a record. Returns what is wrong; empty where nothing is.
std::string append_record(const unsigned char* bytes, ObjectWriter<std::uint64_t>& writer) {
  // No trace is as long; never again is -1 or the largest number.
  constexpr std::uint64_t requests_max = std::uint64_t{1} << 48;
  const auto next = little_endian<std::uint64_t>(bytes + 16);
  constexpr auto never = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  if (next > requests_max && next != never && next != std::numeric_limits<std::uint64_t>::max()) {
    return "its next request is beyond 2^48, so this is no oracleGeneral";
  }
  return writer.append(little_endian<std::uint64_t>(bytes + 4),
                       little_endian<std::uint32_t>(bytes + 12));
}

}  // namespace

Status import_csv(const Conversion& files, const ObjectOptions& options) {
  if (!options.ignore_sizes && options.id_column == options.size_column) {
    return fail(Errc::invalid_argument,
                "--obj-id-col and --obj-size-col are both {}; name two columns, or give "
                "--ignore-obj-size",
                options.id_column);
  }
  TERRACE_ASSIGN(InputFile file, InputFile::open_named(files.source));
  const std::string name = file.name();
  LineReader lines(std::move(file));
  TERRACE_ASSIGN(auto writer, ObjectWriter<std::string>::create(files, "csv", options));
  std::optional<CsvFields> fields;
  for (;;) {
    TERRACE_ASSIGN(const auto line, lines.next());
    if (!line) break;
    tell(files, lines.share());
    const bool first = !fields;
    if (first) fields.emplace(*line);
    std::string flaw = fields->cut(*line);
    if (flaw.empty() && !(first && fields->are_names())) {
      flaw = append_line(*fields, options, writer);
    }
    if (!flaw.empty()) return lines.wrong(flaw);
  }
  return writer.finish(name);
}

Status import_oraclegeneral(const Conversion& files, const ObjectOptions& options) {
  TERRACE_ASSIGN(InputFile file, InputFile::open_named(files.source));
  TERRACE_ASSIGN(auto writer, ObjectWriter<std::uint64_t>::create(files, "oraclegeneral", options));
  std::array<unsigned char, record_bytes * 8192> bytes{};
  for (std::uint64_t number = 1;;) {
    TERRACE_ASSIGN(const std::size_t count,
                   file.read(reinterpret_cast<char*>(bytes.data()), bytes.size()));
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), count);
    const std::string other = number == 1 ? other_form(text, /*binary=*/true) : std::string();
    if (!other.empty()) return fail(Errc::corrupt, "{}: {}", file.name(), other);
    for (std::size_t at = 0; at + record_bytes <= count; at += record_bytes, ++number) {
      const std::string flaw = append_record(bytes.data() + at, writer);
      if (flaw.empty()) continue;
      return fail(Errc::corrupt, "{}: record {}: {}", file.name(), number, flaw);
    }
    tell(files, file.share(file.read_bytes()));
    if (count % record_bytes != 0) {
      return fail(
          Errc::corrupt,
          "{}: record {} ends after {} of {} bytes: the file was cut, or is no oracleGeneral",
          file.name(), number, count % record_bytes, record_bytes);
    }
    if (count < bytes.size()) break;
  }
  return writer.finish(file.name());
}

}  // namespace terrace::tuning
