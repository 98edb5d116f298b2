// What must hold of the types at compile time. The program itself does nothing.

#include <shm/shm.hpp>

#include <concepts>
#include <cstddef>
#include <span>
#include <type_traits>
#include <utility>

namespace {

using window = shm::window<int>;
using posix_window = shm::window<int, shm::posix_policy>;
using communicator = shm::communicator<shm::self_oob>;

template <class T>
constexpr bool is_handle =
    std::is_nothrow_move_constructible_v<T> && std::is_nothrow_destructible_v<T> &&
    !std::is_copy_constructible_v<T> && !std::is_copy_assignable_v<T>;

static_assert(is_handle<window> && std::is_nothrow_move_assignable_v<window>);
static_assert(is_handle<posix_window> && std::is_nothrow_move_assignable_v<posix_window>);
static_assert(is_handle<shm::group> && std::is_nothrow_move_assignable_v<shm::group>);
static_assert(is_handle<communicator> && std::is_nothrow_move_assignable_v<communicator>);

// Empty ones cost nothing and cannot fail.
static_assert(std::is_nothrow_default_constructible_v<window>);
static_assert(std::is_nothrow_default_constructible_v<shm::group>);

// An exception that could throw while it is copied would end the program.
static_assert(std::is_nothrow_copy_constructible_v<shm::error>);
static_assert(std::is_nothrow_copy_constructible_v<shm::ranks_failed>);
static_assert(std::derived_from<shm::error, std::system_error>);
static_assert(std::derived_from<shm::ranks_failed, shm::error>);
static_assert(std::is_error_code_enum_v<shm::errc>);

// Any policy moves into the default one, never out of it, and never to another type.
static_assert(std::is_nothrow_constructible_v<window, posix_window&&>);
static_assert(std::is_nothrow_assignable_v<window&, posix_window&&>);
static_assert(!std::is_constructible_v<posix_window, window&&>);
static_assert(!std::is_constructible_v<window, posix_window&>);
static_assert(!std::is_constructible_v<shm::window<unsigned>, posix_window&&>);

// A window is made over a group that outlives the call.
static_assert(std::is_constructible_v<window, shm::group&, int>);
static_assert(std::is_constructible_v<window, communicator&, std::size_t>);
static_assert(std::is_constructible_v<window, shm::group&, int, shm::window_options>);
static_assert(!std::is_constructible_v<window, shm::group&&, int>);
static_assert(!std::is_constructible_v<window, communicator&&, int>);
static_assert(!std::is_constructible_v<window, shm::group const&, int>);
static_assert(!std::is_constructible_v<window, shm::group&, double>);
static_assert(!std::is_constructible_v<window, shm::group&>);

// What a group is split into is a group.
static_assert(std::same_as<decltype(std::declval<shm::group&>().split(0)), shm::group>);
static_assert(std::same_as<decltype(std::declval<communicator&>().split_by({})), shm::group>);

// A const window is read only.
template <class Window>
using local_span = decltype(std::declval<Window&>().local());
template <class Window>
using indexed_span = decltype(std::declval<Window&>()[0]);
template <class Window>
using checked_span = decltype(std::declval<Window&>().at(0));
template <class Window>
using whole_span = decltype(std::declval<Window&>().all());
static_assert(std::same_as<local_span<window>, std::span<int>>);
static_assert(std::same_as<local_span<window const>, std::span<int const>>);
static_assert(std::same_as<indexed_span<window>, std::span<int>>);
static_assert(std::same_as<indexed_span<window const>, std::span<int const>>);
static_assert(std::same_as<checked_span<window>, std::span<int>>);
static_assert(std::same_as<checked_span<window const>, std::span<int const>>);
static_assert(std::same_as<whole_span<window>, std::span<int>>);
static_assert(std::same_as<whole_span<window const>, std::span<int const>>);

// Queries of the local state cannot fail.
static_assert(noexcept(std::declval<window const&>().rank()));
static_assert(noexcept(std::declval<window const&>().size()));
static_assert(noexcept(std::declval<window const&>().valid()));
static_assert(noexcept(std::declval<window const&>().local()));
static_assert(noexcept(std::declval<window const&>()[0]));
static_assert(noexcept(std::declval<window const&>().page_size()));
static_assert(noexcept(std::declval<shm::group const&>().rank()));
static_assert(noexcept(std::declval<shm::group const&>().size()));
static_assert(noexcept(std::declval<shm::group const&>().valid()));

// What processes share.
static_assert(shm::shareable<int> && shm::shareable<double[4]>);
static_assert(!shm::shareable<int*> && !shm::shareable<int* [4]> && !shm::shareable<int&>);
static_assert(!shm::shareable<int shm::error_context::*> && !shm::shareable<void>);
static_assert(std::is_trivially_copyable_v<shm::failure>);
static_assert(std::is_trivially_copyable_v<shm::settings>);
static_assert(std::is_trivially_copyable_v<shm::window_options>);

// Roles.
static_assert(shm::out_of_band<shm::self_oob> && shm::out_of_band<shm::fork_oob>);
static_assert(shm::out_of_band<shm::group>);
static_assert(!shm::out_of_band<int>);
static_assert(shm::segment_policy<shm::posix_policy> && shm::segment_policy<shm::runtime_policy>);
static_assert(!shm::segment_policy<int>);

// A handle is a few words, and its size does not depend on the type or on the policy.
static_assert(sizeof(shm::group) <= 4 * sizeof(void*));
static_assert(sizeof(communicator) == sizeof(shm::group));
static_assert(sizeof(window) <= 5 * sizeof(void*));
static_assert(sizeof(window) == sizeof(shm::window<double[100], shm::posix_policy>));

}  // namespace

int main() { return 0; }
