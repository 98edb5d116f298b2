# Sourced by the run scripts: sees to it that the tools that they name are there.
#
# need PACKAGE CHECK…   notes Debian's PACKAGE as missing unless the command CHECK… succeeds
# want PACKAGE CHECK…   the same, only where it can be installed: what needs it is skipped elsewhere
# install_missing       installs what is missing with apt as root; elsewhere says what it is
# configure DIRECTORY [OPTION…]   sets a build directory up with these options, also an old one

missing=()

need() {
  local package=$1
  shift
  "$@" >/dev/null 2>&1 || missing+=("$package")
}

can_install() {
  command -v apt-get >/dev/null && [ "$(id -u)" -eq 0 ]
}

want() {
  ! can_install || need "$@"
}

# Whether a C++ compiler finds the header $1.
has_header() {
  echo "#include <$1>" | "${CXX:-c++}" -E -x c++ -
}

need_build_tools() {
  need g++ eval "${CXX:-c++} --version"
  need meson meson --version
  need ninja-build ninja --version
  need pkg-config pkg-config --version
}

# MPICH, unless another MPI is there.
need_mpi() {
  need libmpich-dev eval 'pkg-config --exists mpich || mpicxx --version'
  need mpich eval 'command -v mpiexec.mpich || command -v mpiexec'
}

install_missing() {
  [ ${#missing[@]} -eq 0 ] && return 0
  if can_install; then
    echo "installing: ${missing[*]}"
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq && apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
  else
    echo "missing, by the names of Debian's packages: ${missing[*]}" >&2
    echo "install them (as root on Debian: apt-get install ${missing[*]}) and run this again" >&2
    return 1
  fi
}

# An old directory is configured anew: tools may have been installed since, and the compiler or the
# options may be others. Quiet unless that fails.
configure() {
  local directory=$1 log again=()
  shift
  if [ -f "$directory/build.ninja" ]; then
    if grep -qsx "${CXX:-}" "$directory/compiler"; then again=(--reconfigure); else again=(--wipe); fi
  fi
  log=$(meson setup "$directory" "${again[@]}" "$@" 2>&1) || { echo "$log" >&2; return 1; }
  echo "${CXX:-}" >"$directory/compiler"
}
