#include "page_index.hpp"

#include "head_keys.hpp"
#include "selection_args.hpp"

namespace terrace::policies {

Status check_page_tokens(std::string_view key, std::size_t tokens) {
  if (tokens > 0 && page_chunk_tokens % tokens == 0) return {};
  return fail(Errc::invalid_argument, "{} {} does not divide {}", key, tokens, page_chunk_tokens);
}

Result<IndexLayout> PageIndex::index_layout(const KvShape& shape) const {
  return IndexLayout{.chunk_tokens = page_chunk_tokens,
                     .chunk_bytes = shape.kv_heads * (page_chunk_tokens / pages_.page_tokens) *
                                    pages_.dims(shape) * size_bytes(shape.dtype)};
}

std::size_t PageIndex::select_scratch_floats(const KvShape& shape,
                                             std::size_t candidates) const noexcept {
  return page_scratch_floats(shape, pages_, candidates);
}

Result<BuildReport> PageIndex::build_part(const BuildRequest& request, std::size_t head) const {
  const KvShape& shape = request.shape;
  const std::size_t size = pages_.page_tokens;
  const std::size_t dims = pages_.dims(shape);
  const std::size_t chunk_pages = page_chunk_tokens / size;
  const std::size_t first_token = request.index.first_token;
  std::vector<float> keys(size * shape.head_dim);
  std::vector<float> vector(dims);
  // A page that was begun before is read whole again.
  for (std::size_t page = (request.tokens.begin - first_token) / size;
       first_token + page * size < request.tokens.end; ++page) {
    const std::size_t begin = first_token + page * size;
    const TokenRange tokens{begin, std::min(begin + size, request.tokens.end)};
    TERRACE_TRY(read_head_keys(request, tokens, head, keys.data()));
    describe(request, {.head = head, .tokens = tokens.size(), .keys = keys.data()}, vector.data());
    std::byte* const target =
        request.index.chunks[page / chunk_pages] +
        (head * chunk_pages + page % chunk_pages) * dims * size_bytes(shape.dtype);
    for (std::size_t i = 0; i < dims; ++i) store_f32(target, shape.dtype, i, vector[i]);
  }
  return BuildReport{};
}

Result<Ticket> PageIndex::select(std::span<const SelectRequest> batch, Queue& queue,
                                 const Ops& ops) const {
  return enqueue_select(ops.page_select, batch, queue, [&](const SelectRequest& request) {
    return PageSelect{selection_of(request, reduction_), pages_, request.index};
  });
}

}  // namespace terrace::policies
