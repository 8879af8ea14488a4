// One call: what comes of it.
#pragma once
#include "build.h"

namespace ops_fuzz {

/// Strange: an exception that is none of Tapir's.
enum class End : uint8_t { Result, ValueError, RuntimeError, InternalError, Strange };

struct Outcome {
  End end = End::Result;
  std::string message;
  List y;
};
const char* name_of(End end);

/// f's results, or what it throws.
template <class F> Outcome outcome_of(F&& f) {
  try {
    return {End::Result, "", f()};
  } catch (const tapir::ValueError& e) {
    return {End::ValueError, e.what(), {}};
  } catch (const tapir::RuntimeError& e) {
    return {End::RuntimeError, e.what(), {}};
  } catch (const tapir::InternalError& e) {
    return {End::InternalError, e.what(), {}};
  } catch (const std::exception& e) {
    return {End::Strange, e.what(), {}};
  } catch (...) {
    return {End::Strange, "something that is no std::exception", {}};
  }
}

/// The call on these inputs.
List invoke(const Call& call, const List& x);
/// Runs it, with the generator as it is at the beginning of each; on a GPU, to its end.
Outcome run(const Call& call, const List& x, Device device = kCPU);
/// The constants of the line: of the op, and behind them of its twin.
const Arguments& constants_of(const Call& call);

/// The distance of two numbers near 1; 0 of integers.
double last_place(DType dtype);
/// How a result differs from what is wanted, by more than `ulps` units in the last place of |want| + the mean of all |want|, or
/// `magnitude` where the mean is less (of the numbers that it comes of). Empty: it does not.
std::string differs(const std::vector<double>& want, const std::vector<double>& got, DType dtype, double ulps,
                    double magnitude = 0);
std::string differs(const List& want, const List& got, double ulps, double magnitude = 0);

}  // namespace ops_fuzz
