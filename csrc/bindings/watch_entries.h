// What a Watch compares, and how.
#pragma once
#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "bindings/bindings.h"
#include "bindings/tensor_place.h"
#include "bindings/torch_words.h"
#include "bindings/watch_objects.h"

namespace aicf::bindings {

class Watch;

// One thing that is watched, or many of a kind: these are compared fast, and whoever watches them finds out
// which.
struct Entry {
  enum Kind {
    // By words: these are as before where their words are.
    Namespace,
    Items,  // of a dictionary
    Members,
    ClassAttribute,
    Trained,   // tensors that require a gradient
    Types,     // versions of classes
    Pointers,  // inside of objects
    // Looked at each time.
    Attribute,
    Attributes,  // one attribute of many objects
    Bytes,
    Tensors,
    Call,
    Said,        // what a built-in function says of the process or of this thread
    TorchWords,  // the same of torch, without a call of Python
    Context,     // a ContextVar
    Other
  } kind;
  Ref owner;
  Ref key;  // of ClassAttribute, Attribute, Attributes and Trained; the argument of Said, or null
  Ref expected;
  // Of Namespace and Items: key, value, key, …, a null value for an absent one. Of Pointers: what they point
  // at. Else the members.
  std::vector<Ref> expected_members;
  std::vector<Ref> seen;  // of Namespace: the whole dictionary when it was last found right
  std::vector<TensorPlace> places;
  getter get = nullptr;  // of Attributes and Trained: torch's own getter, without the search for it
  void* closure = nullptr;
  std::vector<const void*> pointers;  // of Pointers: where they are; behind those that expect something, null
  TorchWords::Selection torch_words;  // of TorchWords: which, and what they were
  Watch* watch = nullptr;             // of Other

  // Of Pointers: that one stays what it is now.
  void expect(PyObject* const* pointer) {
    pointers.push_back(pointer);
    expected_members.emplace_back(*pointer);
  }
  bool by_words() const { return kind < Attribute; }
  // What is to be compared of an entry that is as it should be now. A word is read only where those in front
  // of it are the same: it may be in memory that they lead to.
  void list(Words& words) const;
  // Whether all is as expected. Of Types and Pointers their words say it.
  bool same();
  // The same where its words are as before.
  bool looks_same();
  bool has_expected(PyObject* object) const;  // of Attributes and Trained
};

inline std::vector<Ref> items_of(PyObject* dictionary) {
  std::vector<Ref> items;
  PyObject *key = nullptr, *value = nullptr;
  Py_ssize_t position = 0;
  while (PyDict_Next(dictionary, &position, &key, &value)) {
    items.emplace_back(key);
    items.emplace_back(value);
  }
  return items;
}

inline bool same_items(PyObject* dictionary, const std::vector<Ref>& expected) {
  if (static_cast<size_t>(PyDict_GET_SIZE(dictionary)) * 2 != expected.size()) return false;
  PyObject *key = nullptr, *value = nullptr;
  Py_ssize_t position = 0;
  for (size_t i = 0; PyDict_Next(dictionary, &position, &key, &value); i += 2)
    if (key != expected[i].get() || value != expected[i + 1].get()) return false;
  return true;
}

inline bool same_members(PyObject* sequence, const std::vector<Ref>& expected) {
  const Py_ssize_t size = PySequence_Fast_GET_SIZE(sequence);
  if (static_cast<size_t>(size) != expected.size()) return false;
  PyObject** members = PySequence_Fast_ITEMS(sequence);
  for (Py_ssize_t i = 0; i < size; ++i)
    if (members[i] != expected[static_cast<size_t>(i)].get()) return false;
  return true;
}

// Whether `dictionary` holds these keys with these values, whatever else it holds. Its entries are walked in
// order, which is several times faster than to look keys up; only after a change, or in a large dictionary,
// each key is looked up.
inline bool same_names(PyObject* dictionary, const std::vector<Ref>& expected, std::vector<Ref>& seen) {
  if (!seen.empty() && same_items(dictionary, seen)) return true;
  for (size_t i = 0; i < expected.size(); i += 2) {
    PyObject* value = PyDict_GetItemWithError(dictionary, expected[i].get());
    if (!value && PyErr_Occurred()) PyErr_Clear();
    if (value != expected[i + 1].get()) return false;
  }
  if (static_cast<size_t>(PyDict_GET_SIZE(dictionary)) <= 2 * expected.size())  // four entries for each key
    seen = items_of(dictionary);
  return true;
}

// Whether a new reference is `expected`; an exception counts as a difference.
inline bool same_result(PyObject* result, PyObject* expected) {
  const bool same = result == expected;
  Py_XDECREF(result);
  if (!result) PyErr_Clear();
  return same;
}

class Watch {
 public:
  // The first entry from `start` on that is not what it was; -1 if there is none.
  int64_t changed(size_t start) {
    if (start >= entries_.size()) return -1;
    size_t found = entries_.size();
    for (size_t i = starts_[start]; (i = first_other(i)) < words_.size();) {
      const size_t index = entry_of(i);
      if (!entries_[index].same()) {
        found = index;
        break;
      }
      renew(index);
      i = starts_[index + 1];
    }
    for (const size_t index : looked_at_)
      if (index >= start && index < found && !entries_[index].looks_same())
        return static_cast<int64_t>(index);
    return found < entries_.size() ? static_cast<int64_t>(found) : -1;
  }
  int64_t add(Entry entry) {
    if (!entry.by_words()) looked_at_.push_back(entries_.size());
    entry.list(words_);
    ++generation_;
    starts_.push_back(words_.size());
    entries_.push_back(std::move(entry));
    return static_cast<int64_t>(entries_.size()) - 1;
  }
  Entry& entry(size_t index) { return entries_[index]; }
  // After entry `index` was given what it shall expect.
  void accepted(size_t index) {
    ++generation_;
    renew(index);
  }
  const std::vector<Entry>& entries() const { return entries_; }
  // For a watch that compares these words as its own: in front of them, whether this one still expects them.
  void list(Words& words) const {
    words.push_back(Word::now(&generation_, 0));
    words.insert(words.end(), words_.begin(), words_.end());
  }
  bool looks_same() {
    return std::all_of(looked_at_.begin(), looked_at_.end(),
                       [this](size_t index) { return entries_[index].looks_same(); });
  }
  // Watches nothing any more; what was watched is released by the caller, once the watch no longer shows it.
  std::vector<Entry> take() {
    ++generation_;
    words_.clear();
    looked_at_.clear();
    starts_ = {0};
    return std::exchange(entries_, {});
  }

 private:
  // Takes the words of an entry that is right as they are now.
  void renew(size_t index) {
    now_.clear();
    entries_[index].list(now_);
    const auto begin = words_.begin() + static_cast<ptrdiff_t>(starts_[index]);
    const size_t count = starts_[index + 1] - starts_[index];
    if (now_.size() == count) {
      std::copy(now_.begin(), now_.end(), begin);
      return;
    }
    words_.insert(words_.erase(begin, begin + static_cast<ptrdiff_t>(count)), now_.begin(), now_.end());
    for (size_t i = index + 1; i < starts_.size(); ++i) starts_[i] += now_.size() - count;
  }
  // The first word from `i` on that is another one.
  size_t first_other(size_t i) const {
    const Word *word = words_.data() + i, *end = words_.data() + words_.size();
    while (word < end && word->same()) ++word;
    return static_cast<size_t>(word - words_.data());
  }
  size_t entry_of(size_t word) const {
    return static_cast<size_t>(std::upper_bound(starts_.begin(), starts_.end(), word) - starts_.begin()) - 1;
  }

  std::vector<Entry> entries_;
  uint64_t generation_ = 0;           // of what is expected
  std::vector<size_t> looked_at_;     // the entries that are not compared by words alone
  Words words_, now_;                 // of all entries, in their order; of one
  std::vector<size_t> starts_ = {0};  // of the words of each entry, and the end of all
};

inline void list_trained(PyObject* tensor, Words& words) {
  const TorchLayout& torch = TorchLayout::get();
  if (!torch.surely_requires_grad(tensor)) return words.push_back(Word::unknown());
  words.push_back(Word::now(tensor, torch.impl));
  words.push_back(Word::now(read_at<const char*>(tensor, torch.impl), torch.autograd));
  words.push_back(Word::now(torch.autograd_of(tensor), torch.requires_grad / 8 * 8));
}

inline bool Entry::has_expected(PyObject* object) const {
  return (kind == Trained && TorchLayout::get().surely_requires_grad(object)) ||
         same_result(get ? get(object, closure) : PyObject_GetAttr(object, key.get()), expected.get());
}

inline void Entry::list(Words& words) const {
  switch (kind) {
    case Namespace:
    case Items:
      words.push_back(version_of_dictionary(owner.get()));
      break;
    case Members: {
      if (!PyList_Check(owner.get())) break;
      const auto* own = reinterpret_cast<PyListObject*>(owner.get());
      words.push_back({&own->ob_base.ob_size, expected_members.size()});
      words.push_back(Word::of(&own->ob_item, own->ob_item));
      for (size_t i = 0; i < expected_members.size(); ++i)
        words.push_back(Word::of(own->ob_item + i, expected_members[i].get()));
      break;
    }
    case ClassAttribute:
      words.push_back(version_of_class(owner.get()));
      break;
    case Trained:
      for (const Ref& each : expected_members) list_trained(each.get(), words);
      break;
    case Types:
      for (const Ref& each : expected_members) words.push_back(version_of_class(each.get()));
      break;
    case Pointers:
      for (size_t i = 0; i < pointers.size(); ++i)
        words.push_back(
            Word::of(pointers[i], i < expected_members.size() ? expected_members[i].get() : nullptr));
      break;
    case Other:
      watch->list(words);
      break;
    default:
      break;
  }
}

inline bool Entry::same() {
  switch (kind) {
    case Namespace:
      return same_names(owner.get(), expected_members, seen);
    case Items:
      return same_items(owner.get(), expected_members);
    case Members:
      return same_members(owner.get(), expected_members);
    case ClassAttribute:
      return _PyType_Lookup(reinterpret_cast<PyTypeObject*>(owner.get()), key.get()) == expected.get();
    case Trained:
    case Attributes:
      return std::all_of(expected_members.begin(), expected_members.end(),
                         [this](const Ref& each) { return has_expected(each.get()); });
    case Attribute:
      return same_result(PyObject_GenericGetAttr(owner.get(), key.get()), expected.get());
    case Bytes:
      return same_bytes(owner.get(), expected.get());
    case Tensors:
      return same_places(places);
    case Call:
      return same_result(PyObject_CallNoArgs(owner.get()), expected.get());
    case Said:
      return says_same(owner.get(), key.get(), expected.get());
    case TorchWords:
      return bindings::TorchWords::get().same(torch_words);
    case Context:
      return same_context(owner.get(), expected.get());
    case Other:
      return watch->changed(0) < 0;
    default:
      return false;
  }
}

inline bool Entry::looks_same() { return kind == Other ? watch->looks_same() : same(); }

}  // namespace aicf::bindings
