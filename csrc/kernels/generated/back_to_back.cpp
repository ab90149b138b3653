// Reads the links of a chain, and holds its tensors against them.
#include "kernels/generated/back_to_back.h"

#include <algorithm>
#include <set>
#include <sstream>

#include "kernels/common/schema_checks.h"

namespace aicf {
namespace {

constexpr const char* kUses = "write, next, sum and keep, then f16, bf16 or f32";

Texts divided(const std::string& text, char by) {
  Texts parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, by);) {
    part.erase(0, part.find_first_not_of(' '));
    if (by != ' ' || !part.empty()) parts.push_back(part);
  }
  return parts;
}

bool has(const Texts& words, const char* word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// Reads the links one after the other; what it knows of those before is what the next may take.
class Links {
 public:
  explicit Links(const OpDesc& op) : op_(op), b_(op.ins("b")), x_(op.ins("x")), y_(op.outs("y")) {}

  Status check() {
    const TensorDesc& a = op_.in("a");
    const Texts &bodies = op_.attrs.get(kBodies), &links = op_.attrs.get(kLinks);
    AICF_TRY(expect_rank(op_, "a", a, 2));
    if (b_.empty()) return refuse(op_, "b: expected one tensor or more, got none");
    dtype_ = b_[0].dtype;
    if (dtype_ != DType::F16 && dtype_ != DType::BF16)
      return refuse(op_, "b[0]: expected f16 or bf16, got ", b_[0].str());
    if (a.dtype != DType::F32) AICF_TRY(expect_dtype(op_, "a", a, dtype_));
    for (size_t i = 0; i < b_.size(); ++i) {
      const std::string name = op_.in_name(1 + i);
      AICF_TRY(expect_dtype(op_, name.c_str(), b_[i], dtype_));
      AICF_TRY(expect_rank(op_, name.c_str(), b_[i], 2));
    }
    if (links.empty()) return refuse(op_, "links: expected one or more, got none");
    if (bodies.size() != links.size())
      return refuse(op_, "bodies: expected one for each of ", links.size(), " links, got ", bodies.size());
    rows_ = a.shape[0];
    columns_ = a.shape[1];
    for (; link_ < links.size(); ++link_) AICF_TRY(check_link(links[link_], link_ + 1 == links.size()));
    for (size_t i = 0; i < b_.size(); ++i)
      if (!multiplied_.count(i))
        return refuse(op_, op_.in_name(1 + i), ": expected a link that multiplies by it");
    for (const std::string& text : op_.attrs.get(kBehind)) AICF_TRY(check_behind(text));
    if (written_ != y_.size())
      return refuse(op_, "y: expected ", written_, " tensors, as links says, got ", y_.size());
    return Status::ok();
  }

 private:
  Status check_link(const std::string& text, bool last) {
    const size_t arrow = text.find("->"), values = widths_.size();  // it takes none of its own values
    const Texts taken = divided(text.substr(0, arrow), ' ');
    if (arrow == std::string::npos || taken.empty() ||
        text.find_first_not_of(' ', arrow + 2) == std::string::npos)
      return wrong("expected what it takes -> what it gives, got '", text, "'");
    AICF_TRY(check_product(taken[0]));
    for (size_t i = 1; i < taken.size(); ++i) AICF_TRY(check_taken(taken[i], values));
    size_t chained = 0;
    for (const std::string& uses : divided(text.substr(arrow + 2), ','))
      AICF_TRY(check_value(uses, &chained));
    if (chained != (last ? 0 : 1))
      return wrong("expected ", last ? "no value" : "one value", " for the next link, got ", chained);
    return Status::ok();
  }

  // b0 or b0.T: the columns of what it multiplies become those of the product.
  Status check_product(std::string name) {
    const bool transposed = name.size() > 2 && name.compare(name.size() - 2, 2, ".T") == 0;
    const std::string written = name;
    if (transposed) name.resize(name.size() - 2);
    size_t index = 0;
    AICF_TRY(read(name, {{'b', b_.size()}}, &index));
    const TensorDesc& b = b_[index];
    multiplied_.insert(index);
    if (b.shape[transposed ? 1 : 0] != columns_)
      return wrong("expected a product over ", columns_, " columns, got ", written, " of ", b.str());
    columns_ = b.shape[transposed ? 0 : 1];
    return Status::ok();
  }

  Status check_taken(const std::string& name, size_t values) {
    size_t index = 0;
    AICF_TRY(read(name, {{'x', x_.size()}, {'y', values}}, &index));
    if (name[0] == 'y' && widths_[index] != columns_)
      return wrong("it takes ", name, " of ", widths_[index], " columns, expected ", columns_);
    if (name[0] == 'x' && !has_shape(x_[index], {rows_, columns_}))
      return wrong("it takes ", name, ", expected shape [", rows_, ", ", columns_, "], got ",
                   x_[index].str());
    return Status::ok();
  }

  // A letter of those with a number below its count.
  Status read(const std::string& name, const std::vector<std::pair<char, size_t>>& known, size_t* index) {
    const auto is_digit = [](char c) { return '0' <= c && c <= '9'; };
    if (name.size() > 1 && name.size() < 8 && std::all_of(name.begin() + 1, name.end(), is_digit)) {
      *index = std::stoul(name.substr(1));
      for (const auto& [letter, count] : known)
        if (name[0] == letter)
          return *index < count ? Status::ok()
                                : wrong("there is no ", name, " here; of ", letter, " there are ", count);
    }
    std::string letters;
    for (const auto& [letter, count] : known)
      letters += (letters.empty() ? "" : " or ") + std::string(1, letter);
    return wrong("expected ", letters, " with a number, got '", name, "'");
  }

  Status check_value(const std::string& uses, size_t* chained) {
    const Texts words = divided(uses, ' ');
    const bool write = has(words, "write"), next = has(words, "next"), sum = has(words, "sum");
    const size_t known = write + next + sum + has(words, "keep"), typed = words.size() - known;
    const bool is_type =
        typed == 1 && (words.back() == "f16" || words.back() == "bf16" || words.back() == "f32");
    if (!known || typed > 1 || (typed == 1 && !is_type))
      return wrong("a value has uses, each once: ", kUses, "; got '", uses, "'");
    if (typed && write) return wrong("what is written has its type there, got '", uses, "'");
    if (const std::string type = dtype_name(dtype_); next && !write && words.back() != type)
      return wrong("expected a value of ", type, " for the next link, got '", uses, "'");
    *chained += next;
    widths_.push_back(columns_);
    const bool narrow =
        write ? written_ < y_.size() && y_[written_].dtype == dtype_ : words.back() == dtype_name(dtype_);
    narrow_.push_back(narrow);
    if (write) {
      AICF_TRY(check_result({rows_, columns_}));
      if (next) AICF_TRY(expect_dtype(op_, op_.out_name(written_).c_str(), y_[written_], dtype_));
      ++written_;
    }
    if (sum) {
      AICF_TRY(check_result({columns_}));
      AICF_TRY(expect_float(op_, op_.out_name(written_).c_str(), y_[written_]));
      ++written_;
    }
    return Status::ok();
  }

  // "a", "y1.T a" or "y1.T y0".
  Status check_behind(const std::string& text) {
    const TensorDesc& a = op_.in("a");
    const Texts words = divided(text, ' ');
    if (words.size() == 1 && words[0] == "a") {
      if (&text != &op_.attrs.get(kBehind).front())
        return refuse(op_, "behind: expected 'a' once, and first");
      if (a.dtype != DType::F32)
        return refuse(op_, "behind: 'a' is an a of f32 as it is rounded, got ", a.str());
      AICF_TRY(check_result({a.shape[0], a.shape[1]}));
      AICF_TRY(expect_dtype(op_, op_.out_name(written_).c_str(), y_[written_], dtype_));
      ++written_;
      return Status::ok();
    }
    const std::string left = words.empty() ? "" : words[0];
    if (words.size() != 2 || left.size() < 3 || left.compare(left.size() - 2, 2, ".T") != 0)
      return refuse(op_, "behind: expected a, or y0.T y1 or y0.T a with numbers of values, got '", text, "'");
    int64_t rows = 0, columns = a.shape[1];
    AICF_TRY(check_side(left.substr(0, left.size() - 2), &rows));
    if (words[1] != "a") AICF_TRY(check_side(words[1], &columns));
    AICF_TRY(check_result({rows, columns}));
    AICF_TRY(expect_float(op_, op_.out_name(written_).c_str(), y_[written_]));
    ++written_;
    return Status::ok();
  }

  Status check_side(const std::string& name, int64_t* columns) {
    size_t index = 0;
    AICF_TRY(read(name, {{'y', widths_.size()}}, &index));
    if (!narrow_[index])
      return wrong(name, " is not rounded to ", dtype_name(dtype_), ", so that it could be multiplied");
    *columns = widths_[index];
    return Status::ok();
  }

  Status check_result(const std::vector<int64_t>& shape) {
    if (written_ >= y_.size())
      return refuse(op_, "y: expected more tensors than ", y_.size(), ", as ", place(), " says");
    if (has_shape(y_[written_], shape)) return Status::ok();
    const DType dtype = y_[written_].dtype;
    return refuse(op_, op_.out_name(written_), ": expected ", expected_tensor(dtype, shape).str(), ", got ",
                  y_[written_].str());
  }

  static bool has_shape(const TensorDesc& t, const std::vector<int64_t>& shape) {
    return std::vector<int64_t>(t.shape, t.shape + t.rank) == shape;
  }

  template <class... Parts>
  Status wrong(const Parts&... parts) {
    return refuse(op_, place(), ": ", parts...);
  }

  std::string place() const {
    return link_ < op_.attrs.get(kLinks).size() ? "links[" + std::to_string(link_) + "]" : "behind";
  }

  const OpDesc& op_;
  const Tensors b_, x_, y_;
  int64_t rows_ = 0, columns_ = 0;
  DType dtype_ = DType::F32;  // of all that is multiplied
  size_t link_ = 0, written_ = 0;
  std::set<size_t> multiplied_;
  std::vector<int64_t> widths_;  // of each value so far
  std::vector<bool> narrow_;     // whether it is rounded to what is multiplied
};

}  // namespace

Status check_chain(const OpDesc& op) { return Links(op).check(); }

}  // namespace aicf
