#include "query_basis.hpp"

#include <Eigen/Core>
#include <Eigen/Eigenvalues>
#include <algorithm>
#include <cmath>

namespace terrace::policies {
namespace {

using Matrix = Eigen::MatrixXd;
using Rows =
    Eigen::Map<const Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>>;

constexpr double eigenvalue_floor = 1e-3;
constexpr Eigen::Index rows_at_once = 512;

/// Sums over the finite rows of a matrix.
struct Moments {
  Eigen::VectorXd sum;
  Matrix products;
  double count = 0;

  [[nodiscard]] Matrix second() const { return products / std::max(count, 1.0); }
  [[nodiscard]] Matrix covariance() const {
    const Eigen::VectorXd mean = sum / std::max(count, 1.0);
    return second() - mean * mean.transpose();
  }
};

Moments moments_of(std::span<const float> values, Eigen::Index dims) {
  Moments moments{.sum = Eigen::VectorXd::Zero(dims), .products = Matrix::Zero(dims, dims)};
  const auto rows = static_cast<Eigen::Index>(values.size()) / dims;
  const Rows all(values.data(), rows, dims);
  for (Eigen::Index begin = 0; begin < rows; begin += rows_at_once) {
    Matrix block = all.middleRows(begin, std::min(rows_at_once, rows - begin)).cast<double>();
    for (Eigen::Index i = 0; i < block.rows(); ++i) {
      if (block.row(i).allFinite()) {
        moments.count += 1;
      } else {
        block.row(i).setZero();
      }
    }
    moments.sum += block.colwise().sum().transpose();
    moments.products.noalias() += block.transpose() * block;
  }
  return moments;
}

/// How much an error in each direction matters: positive definite, of mean eigenvalue 1.
Matrix direction_weights(const QueryBasisInput& input) {
  const auto dims = static_cast<Eigen::Index>(input.dims);
  Matrix alike = Matrix::Identity(dims, dims);
  const Matrix second = moments_of(input.queries, dims).second();
  const double scale = second.trace() / static_cast<double>(dims);
  if (!(scale > 0) || !std::isfinite(scale)) return alike;
  return (1 - input.shrinkage) / scale * second + input.shrinkage * alike;
}

std::vector<float> row_major(const Matrix& matrix) {
  std::vector<float> values(static_cast<std::size_t>(matrix.size()));
  Eigen::Map<Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>>(
      values.data(), matrix.rows(), matrix.cols()) = matrix.cast<float>();
  return values;
}

}  // namespace

QueryBasis find_query_basis(const QueryBasisInput& input) {
  const Eigen::SelfAdjointEigenSolver<Matrix> weights(direction_weights(input));
  const Eigen::VectorXd values =
      weights.eigenvalues().cwiseMax(eigenvalue_floor * weights.eigenvalues().maxCoeff());
  const Matrix stretch = weights.eigenvectors() * values.cwiseSqrt().asDiagonal();
  const Matrix unstretch = weights.eigenvectors() * values.cwiseSqrt().cwiseInverse().asDiagonal();

  const auto dims = static_cast<Eigen::Index>(input.dims);
  const Matrix covariance = moments_of(input.keys, dims).covariance();
  const Eigen::SelfAdjointEigenSolver<Matrix> axes(stretch.transpose() * covariance * stretch);
  Matrix turn(dims, dims);
  const auto subspaces = static_cast<Eigen::Index>(input.subspaces);
  for (Eigen::Index i = 0; i < dims; ++i) {
    // Eigenvalues rise: the i-th largest variance goes to sub-space i % subspaces.
    turn.col(i % subspaces * (dims / subspaces) + i / subspaces) =
        axes.eigenvectors().col(dims - 1 - i);
  }
  return {.query_map = row_major(unstretch * turn), .key_map = row_major(stretch * turn)};
}

}  // namespace terrace::policies
