// The part of retention that is a layer's: the entries it keeps, and all that decisions on more
// need.
#pragma once

#include "decision.hpp"
#include "layer_weights.hpp"
#include "terrace/core/clock.hpp"
#include "terrace/core/queue.hpp"
#include "token_ratings.hpp"

namespace terrace {

/// A decision that is being made: written on the cluster queue, read once its ticket is done.
struct DecisionRecord {
  Status status;
  FlushCount count;
  Duration taken{};
};

struct LayerRetention {
  KeptEntries entries;
  LastQueries queries;
  PositionScores scores;  ///< written on the cluster queue
  TokenRatings ratings;
  LayerWeights weights;  ///< of the step's tokens
  DecisionRecord decision;
  Ticket decided;   ///< on the cluster queue
  Ticket uploaded;  ///< the device's entries are whole, on the refill queue
};

}  // namespace terrace
