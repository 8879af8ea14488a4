#pragma once
#include <cmath>

// Scaling and squaring, exp(a) = exp(a / 2^s)^(2^s), with the [13/13] Pade approximant: Higham 2005, "The scaling and squaring method for
// the matrix exponential revisited", table 2.3. With b the coefficients, u the odd terms of their polynomial and v the even ones,
// exp(a) = (v - u)^-1 (v + u).
namespace tapir::inline v0 {

inline constexpr double kPade13[] = {64764752532480000.,
                                     32382376266240000.,
                                     7771770303897600.,
                                     1187353796428800.,
                                     129060195264000.,
                                     10559470521600.,
                                     670442572800.,
                                     33522128640.,
                                     1323241920.,
                                     40840800.,
                                     960960.,
                                     16380.,
                                     182.,
                                     1.};
/// s for a matrix of that finite 1-norm: the approximant is exact to rounding up to a norm of 5.37.
inline int halvings_for(double norm) { return norm > 5.37 ? int(std::ceil(std::log2(norm / 5.37))) : 0; }

}  // namespace tapir::inline v0
