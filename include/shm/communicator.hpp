#pragma once
/// @file The group that a bootstrap makes.

#include <optional>

#include "shm/base/settings.hpp"
#include "shm/group.hpp"
#include "shm/group/handshake.hpp"
#include "shm/oob/out_of_band.hpp"

namespace shm::inline v1 {

/// A group made through a bootstrap, which is used only while it is constructed.
///
/// Collective: all ranks of the bootstrap. Two or three allgathers of 256 bytes from each rank.
/// Errors:     the same on every rank. errc::bootstrap_failed; errc::not_shareable where ranks are
///             on different machines, or cannot reach each other's memory; errc::mismatch where
///             versions or numbers of ranks differ; what the kernel refuses. A bootstrap that
///             reports a failure on one rank is an error on all.
template <out_of_band Oob>
class communicator : public group {
 public:
  /// `given` replaces the settings from the environment; rank 0's are taken.
  explicit communicator(Oob& oob, std::optional<settings> given = {})
      : group(detail::handshake(out_of_band_ref(oob), given).run()) {}
  explicit communicator(Oob&& oob, std::optional<settings> given = {}) : communicator(oob, given) {}
};

/// Makes a group over the ranks of another one; without it, this would ask for a copy.
template <class Oob>
communicator(communicator<Oob>&) -> communicator<communicator<Oob>>;
template <class Oob>
communicator(communicator<Oob>&, std::optional<settings>) -> communicator<communicator<Oob>>;

}  // namespace shm::inline v1
