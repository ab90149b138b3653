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
    Namespace,
    Items,
    Empty,  // dictionaries
    Members,
    Cell,
    ClassAttribute,
    Attribute,
    Attributes,  // one attribute of many objects
    Trained,     // tensors that require a gradient
    Fields,      // pointers inside many objects, all null
    Bytes,
    Tensors,
    Call,
    Word,        // what a built-in function says of the process or of this thread
    TorchWords,  // the same of torch, without a call of Python
    Functions,   // code and defaults of Python functions
    Types,       // versions of classes
    Instances,   // class and dictionary of objects
    Context,     // a ContextVar
    Other
  } kind;
  Ref owner;
  Ref key;       // of ClassAttribute, Attribute, Attributes and Trained; the argument of Word, or null
  Ref expected;  // null: an empty cell
  // Of Namespace and Items: key, value, key, …, a null value for an absent one. Of Functions and Instances:
  // each with its parts. Else the members.
  std::vector<Ref> expected_members;
  std::vector<Ref> seen;  // of Namespace: the whole dictionary when it was last found right
  std::vector<TensorPlace> places;
  getter get = nullptr;  // of Attributes and Trained: torch's own getter, without the search for it
  void* closure = nullptr;
  std::vector<Py_ssize_t> fields;                  // of Fields: bytes from the start of each object
  std::vector<unsigned> versions;                  // of Types
  std::vector<std::pair<size_t, uint64_t>> words;  // of TorchWords: which, and what it was
  Watch* watch = nullptr;                          // of Other

  bool same();
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

inline bool unchanged(Watch& watch);

inline PyObject* pointer_at(PyObject* object, Py_ssize_t offset) {
  return read_at<PyObject*>(object, offset);
}

inline bool Entry::has_expected(PyObject* object) const {
  return same_result(get ? get(object, closure) : PyObject_GetAttr(object, key.get()), expected.get());
}

inline bool Entry::same() {
  switch (kind) {
    case Namespace:
      return same_names(owner.get(), expected_members, seen);
    case Items:
      return same_items(owner.get(), expected_members);
    case Members:
      return same_members(owner.get(), expected_members);
    case Cell:
      return PyCell_GET(owner.get()) == expected.get();
    case ClassAttribute:
      return _PyType_Lookup(reinterpret_cast<PyTypeObject*>(owner.get()), key.get()) == expected.get();
    case Attribute:
      return same_result(PyObject_GetAttr(owner.get(), key.get()), expected.get());
    case Attributes:
      for (size_t i = 0; i < expected_members.size(); ++i) {
        if (i + kAhead < expected_members.size()) prefetch(expected_members[i + kAhead].get());
        if (!has_expected(expected_members[i].get())) return false;
      }
      return true;
    case Trained: {
      const TorchLayout& torch = TorchLayout::get();
      for (size_t i = 0; i < expected_members.size(); ++i) {
        if (i + kAhead < expected_members.size())
          prefetch(torch.autograd_of(expected_members[i + kAhead].get()), torch.requires_grad);
        PyObject* object = expected_members[i].get();
        if (!torch.surely_requires_grad(object) && !has_expected(object)) return false;
      }
      return true;
    }
    case Fields:
      for (size_t i = 0; i < expected_members.size(); ++i) {
        for (const Py_ssize_t field : fields) {
          if (i + kAhead < expected_members.size()) prefetch(expected_members[i + kAhead].get(), field);
          if (pointer_at(expected_members[i].get(), field)) return false;
        }
      }
      return true;
    case Empty:
      for (size_t i = 0; i < expected_members.size(); ++i) {
        if (i + kAhead < expected_members.size()) prefetch(expected_members[i + kAhead].get());
        if (PyDict_GET_SIZE(expected_members[i].get())) return false;
      }
      return true;
    case Bytes:
      return same_bytes(owner.get(), expected.get());
    case Tensors:
      for (size_t i = 0; i < places.size(); ++i) {
        if (i + kAhead < places.size()) places[i + kAhead].prefetch();
        if (!places[i].same()) return false;
      }
      return true;
    case Call:
      return same_result(PyObject_CallNoArgs(owner.get()), expected.get());
    case Word:
      return same_word(owner.get(), key.get(), expected.get());
    case TorchWords: {
      const bindings::TorchWords& torch = bindings::TorchWords::get();
      for (const auto& [word, was] : words)
        if (torch.read(word) != was) return false;
      return true;
    }
    case Functions:
      return same_functions(expected_members);
    case Types:
      return same_types(expected_members, versions);
    case Instances:
      return same_instances(expected_members);
    case Context:
      return same_context(owner.get(), expected.get());
    case Other:
      return unchanged(*watch);
  }
  return false;
}

// The dictionary that an entry compares, and its version when it was last found right: as long as that stays,
// so does the dictionary, and nothing else is looked at. CPython has versions up to 3.12.
class Stamp {
 public:
  explicit Stamp(const Entry& entry)
      : dictionary_(entry.kind == Entry::Namespace || entry.kind == Entry::Items ? entry.owner.get()
                                                                                 : nullptr) {
    renew();
  }
  bool same() const { return dictionary_ && version_ && version() == version_; }
  void renew() { version_ = dictionary_ ? version() : 0; }
  void prefetch() const { bindings::prefetch(dictionary_); }

 private:
  uint64_t version() const {
#if PY_VERSION_HEX < 0x030D0000
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
    return reinterpret_cast<PyDictObject*>(dictionary_)->ma_version_tag;
#pragma GCC diagnostic pop
#else
    return 0;
#endif
  }

  PyObject* dictionary_;  // the entry's
  uint64_t version_ = 0;  // 0: not known
};

class Watch {
 public:
  // The first entry from `start` on that is not what it was; -1 if there is none.
  int64_t changed(int64_t start) {
    for (size_t i = static_cast<size_t>(std::max<int64_t>(start, 0)); i < entries_.size(); ++i) {
      if (i + kAhead < stamps_.size()) stamps_[i + kAhead].prefetch();
      if (stamps_[i].same()) continue;
      if (!entries_[i].same()) return static_cast<int64_t>(i);
      stamps_[i].renew();
    }
    return -1;
  }
  int64_t add(Entry entry) {
    stamps_.emplace_back(entry);
    entries_.push_back(std::move(entry));
    return static_cast<int64_t>(entries_.size()) - 1;
  }
  Entry& entry(size_t index) { return entries_[index]; }
  // After entry `index` was given what it shall expect.
  void renew(size_t index) { stamps_[index].renew(); }
  const std::vector<Entry>& entries() const { return entries_; }
  // Watches nothing any more; what was watched is released by the caller, once the watch no longer shows it.
  std::vector<Entry> take() {
    stamps_.clear();
    return std::exchange(entries_, {});
  }

 private:
  std::vector<Entry> entries_;
  std::vector<Stamp> stamps_;  // one for each
};

inline bool unchanged(Watch& watch) { return watch.changed(0) < 0; }

}  // namespace aicf::bindings
