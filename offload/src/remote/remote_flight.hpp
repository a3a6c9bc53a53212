// A request on its way to a server and back.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "page_commands.hpp"
#include "storage/request_order.hpp"

namespace terrace::offload {

struct RemoteFlight;
using FlightPointer = std::shared_ptr<RemoteFlight>;
using Flights = std::multimap<TimePoint, FlightPointer>;  ///< by their deadline

struct RemoteFlight {
  PageWork work;
  std::string name;        ///< of the value
  std::uint16_t slot = 0;  ///< of the name
  std::size_t bytes = 0;   ///< of the page, where the request moves them
  bool writes = false;     ///< what the server has
  Flights::iterator place = {};
  std::string node_host = {};  ///< of the node that it was sent to last
  std::vector<RedisReply> answers = {};
  std::size_t answers_due = 0;
  std::size_t redirects = 0;
  Status failure = {};     ///< of the node, where it was lost
  bool asks_once = false;  ///< the next node has it only if it is told ASKING
  bool was_sent = false;   ///< a server may have carried it out
  bool is_over = false;    ///< its request has a status; answers that come are thrown away
};

}  // namespace terrace::offload
