#include "bench_nvme.hpp"

#include <fmt/ranges.h>
#include <linux/magic.h>
#include <sys/vfs.h>

#include <algorithm>
#include <filesystem>
#include <memory>

#include "bench_rows.hpp"
#include "nvme/nvme_costs.hpp"
#include "nvme/questions.hpp"
#include "output.hpp"
#include "profile_file.hpp"
#include "program_files.hpp"

namespace terrace::apps {
namespace {

struct NvmeBenchOptions : BenchOptions {
  std::string folder;  ///< empty = the system's for temporary files
};

Result<std::string> folder_of(const NvmeBenchOptions& options) {
  if (options.folder.empty()) {
    const Result<std::filesystem::path> folder = temporary_folder();
    if (folder) return folder->string();
    return fail(Errc::invalid_argument, "{}; name a folder by --folder", folder.error().message());
  }
  if (std::filesystem::is_directory(options.folder)) return options.folder;
  return fail(Errc::invalid_argument, "--folder {}: there is no such folder", options.folder);
}

bool lies_in_memory(const std::string& folder) noexcept {
  struct statfs status{};
  return ::statfs(folder.c_str(), &status) == 0 &&
         (status.f_type == TMPFS_MAGIC || status.f_type == RAMFS_MAGIC);
}

Status write_profile(const NvmeBenchOptions& options, const Config& config, const Machine& machine,
                     std::span<const bench::Row> rows) {
  const auto costs = bench::nvme_costs(rows);
  if (!costs) {
    return fail(Errc::invalid_argument, "--write-profile needs the rows {}: leave out --only",
                fmt::join(bench::nvme_cost_rows, ", "));
  }
  warn_of_quick_profile(options, "file's");
  return extend_profile(options.profile_file, machine, config.duration("deadline"),
                        [&](MachineProfile& profile) { profile.nvme = costs; });
}

Result<int> bench_nvme(const NvmeBenchOptions& options) {
  TERRACE_ASSIGN(const Config config, bench_config(options));
  TERRACE_TRY(check_targets({{"--write-profile", options.profile_file}},
                            {{"--config", options.shared.config_file}}));
  TERRACE_ASSIGN(const std::string folder, folder_of(options));
  std::vector<bench::Question> questions =
      bench::nvme_questions({.folder = folder, .quick = options.quick});
  TERRACE_TRY(keep_wanted(options, questions));
  if (lies_in_memory(folder) && !options.shared.quiet) {
    warn("{} lies in memory; name a folder on the disk to be measured by --folder", folder);
  }
  const Machine machine = read_machine();
  if (!options.profile_file.empty()) {
    TERRACE_TRY(profile_to_extend(options.profile_file, machine));
  }
  const std::vector<bench::Row> rows = ask_all(questions, options);
  if (options.shared.json()) {
    print_rows_document("bench nvme", config, machine, rows);
  } else {
    print_out("machine  {}, {} cores\nfolder   {}{}\n\n{}", machine.cpu, machine.cores, folder,
              quick_note(options.quick), bench::table(rows));
  }
  if (!options.profile_file.empty()) TERRACE_TRY(write_profile(options, config, machine, rows));
  const auto alone = std::ranges::find_if(
      rows, [](const bench::Row& row) { return row.parameters.contains("no_peer"); });
  if (alone != rows.end() && !options.shared.quiet) {
    say("{} has no peer: {}", alone->name, alone->parameters["no_peer"].get<std::string>());
  }
  return std::ranges::any_of(rows, &bench::Row::failed) ? 1 : 0;
}

constexpr std::string_view nvme_words = R"(Rows:
  read, write               pages in order (sequential) or from all over (scattered)
  4096_d32                  bytes of a page, and how many are under way at a time
  cpu_per_request           time of the process's CPUs for each page
  store_get, store_put      the same through the page store, with checksums and a journal
  store_get_part            parts of pages through the store, with checksums of their own
  open_1000000_pages        opening a store that holds so many
)";

}  // namespace

void add_bench_nvme(CLI::App& bench, Invocation& invocation) {
  CLI::App* const nvme = bench.add_subcommand("nvme", "pages to and from a disk, beside fio");
  const auto options = std::make_shared<NvmeBenchOptions>();
  add_bench_options(*nvme, *options, nvme_words);
  nvme->add_option("--folder", options->folder, "on the disk to be measured [the temporary one]")
      ->option_text("DIR");
  nvme->add_option("--write-profile", options->profile_file,
                   "put the disk's rates and latency into a machine profile")
      ->option_text("FILE");
  nvme->callback([options, &invocation] {
    invocation = {[options] { return bench_nvme(*options); }, options->shared.verbose};
  });
}

}  // namespace terrace::apps
