// Layout and relocations as the System V ABI and its x86-64 supplement say; declarations from <elf.h>.
#include "runtime/elf.h"

#include <elf.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <vector>

namespace aicf {
namespace {

constexpr size_t kMostBytes = size_t{1} << 28;  // of an object, and of what it takes in memory

// Pages of one protection.
enum Group { kText, kConstants, kData, kGroups };
constexpr int kProtection[kGroups] = {PROT_READ | PROT_EXEC, PROT_READ, PROT_READ | PROT_WRITE};

Status refuse(const std::string& why) { return Status::invalid("the object cannot be loaded: " + why); }

size_t round_up(size_t value, size_t unit) { return (value + unit - 1) / unit * unit; }

// A section that takes memory.
struct Place {
  bool loaded = false;
  Group group = kData;
  size_t offset = 0;  // bytes from the first page
};

class Loader {
 public:
  explicit Loader(const std::string& object) : object_(object) {}

  Status read();                  // headers, sections and symbols
  Status lay_out();               // an offset for each section, a size for each group
  Status relocate(char* memory);  // copies the sections and fills in addresses
  Status protect(char* memory) const;
  size_t bytes() const { return group_start_[kGroups]; }
  void functions(char* memory, std::unordered_map<std::string, void*>* out) const;

 private:
  bool inside(uint64_t offset, uint64_t size) const {
    return offset <= object_.size() && size <= object_.size() - offset;
  }
  // The i-th record of a table that starts at `offset`, which the caller has checked.
  template <class T>
  T record(uint64_t offset, uint64_t i) const {
    T value;
    std::memcpy(&value, object_.data() + offset + i * sizeof(T), sizeof(T));
    return value;
  }
  Status check_header(Elf64_Ehdr* header) const;
  Status check_section(const Elf64_Shdr& section) const;
  // The records of a section of T, by their number.
  template <class T>
  Status check_table(const Elf64_Shdr& section, uint64_t* count) const;
  Status read_symbols(const Elf64_Shdr& table);
  Status name_of(const Elf64_Sym& symbol, std::string* out) const;
  Status address_of(uint64_t symbol, const char* memory, uint64_t* out) const;
  Status apply(const Elf64_Rela& relocation, size_t target, char* memory) const;

  const std::string& object_;
  std::vector<Elf64_Shdr> sections_;
  std::vector<Place> places_;  // of each section
  std::vector<Elf64_Sym> symbols_;
  Elf64_Shdr names_{};  // of symbols
  size_t group_start_[kGroups + 1] = {};
};

Status Loader::check_header(Elf64_Ehdr* header) const {
  if (object_.size() > kMostBytes) return refuse("it has more than " + std::to_string(kMostBytes) + " bytes");
  if (object_.size() < sizeof(Elf64_Ehdr)) return refuse("it is shorter than the header of an ELF file");
  *header = record<Elf64_Ehdr>(0, 0);
  if (std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0) return refuse("it is no ELF file");
  if (header->e_ident[EI_CLASS] != ELFCLASS64 || header->e_ident[EI_DATA] != ELFDATA2LSB ||
      header->e_machine != EM_X86_64)
    return refuse("it is for another machine; expected one of 64-bit x86-64");
  if (header->e_type != ET_REL) return refuse("it is not relocatable, as compilers emit with -c");
  if (header->e_shentsize != sizeof(Elf64_Shdr) || header->e_shnum == 0 ||
      !inside(header->e_shoff, header->e_shnum * sizeof(Elf64_Shdr)))
    return refuse("its table of sections lies outside of it");
  return Status::ok();
}

Status Loader::check_section(const Elf64_Shdr& section) const {
  if (section.sh_type != SHT_NOBITS && section.sh_type != SHT_NULL &&
      !inside(section.sh_offset, section.sh_size))
    return refuse("a section lies outside of it");
  if (!(section.sh_flags & SHF_ALLOC)) return Status::ok();
  if (section.sh_size > kMostBytes)
    return refuse("a section has more than " + std::to_string(kMostBytes) + " bytes");
  if (section.sh_flags & SHF_TLS) return refuse("it has thread-local data");
  if (section.sh_flags & SHF_COMPRESSED) return refuse("it has compressed sections");
  if ((section.sh_flags & SHF_EXECINSTR) && (section.sh_flags & SHF_WRITE))
    return refuse("a section is both writable and executable");
  const uint64_t alignment = section.sh_addralign;
  if (alignment > 4096 || (alignment & (alignment - 1)) != 0)
    return refuse("a section is aligned to " + std::to_string(alignment) + " bytes");
  return Status::ok();
}

template <class T>
Status Loader::check_table(const Elf64_Shdr& section, uint64_t* count) const {
  if (section.sh_entsize != sizeof(T) || section.sh_size % sizeof(T) != 0 ||
      !inside(section.sh_offset, section.sh_size))
    return refuse("a table of symbols or relocations has records of another size");
  *count = section.sh_size / sizeof(T);
  return Status::ok();
}

Status Loader::read() {
  Elf64_Ehdr header;
  AICF_TRY(check_header(&header));
  for (uint64_t i = 0; i < header.e_shnum; ++i) {
    sections_.push_back(record<Elf64_Shdr>(header.e_shoff, i));
    AICF_TRY(check_section(sections_.back()));
  }
  const Elf64_Shdr* table = nullptr;
  for (const Elf64_Shdr& section : sections_) {
    if (section.sh_type != SHT_SYMTAB) continue;
    if (table) return refuse("it has two tables of symbols");
    table = &section;
  }
  return table ? read_symbols(*table) : refuse("it has no table of symbols");
}

Status Loader::read_symbols(const Elf64_Shdr& table) {
  uint64_t count = 0;
  AICF_TRY(check_table<Elf64_Sym>(table, &count));
  if (table.sh_link >= sections_.size() || sections_[table.sh_link].sh_type != SHT_STRTAB)
    return refuse("its symbols have no names");
  names_ = sections_[table.sh_link];
  for (uint64_t i = 0; i < count; ++i) symbols_.push_back(record<Elf64_Sym>(table.sh_offset, i));
  return Status::ok();
}

Status Loader::name_of(const Elf64_Sym& symbol, std::string* out) const {
  if (symbol.st_name >= names_.sh_size) return refuse("the name of a symbol lies outside of it");
  const char* first = object_.data() + names_.sh_offset + symbol.st_name;
  const size_t most = names_.sh_size - symbol.st_name, length = strnlen(first, most);
  if (length == most) return refuse("the name of a symbol does not end");
  out->assign(first, length);
  return Status::ok();
}

Status Loader::lay_out() {
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  places_.resize(sections_.size());
  size_t end = 0;
  for (int group = 0; group < kGroups; ++group) {
    group_start_[group] = end;
    for (size_t i = 0; i < sections_.size(); ++i) {
      const Elf64_Shdr& section = sections_[i];
      if (!(section.sh_flags & SHF_ALLOC) || section.sh_type == SHT_NULL) continue;
      const Group own = section.sh_flags & SHF_EXECINSTR ? kText
                        : section.sh_flags & SHF_WRITE   ? kData
                                                         : kConstants;
      if (own != group) continue;
      end = round_up(end, section.sh_addralign ? section.sh_addralign : 1);
      places_[i] = {true, own, end};
      end += section.sh_size;  // at most 2^16 sections of at most 2^28 bytes
      if (end > kMostBytes) return refuse("it takes more than " + std::to_string(kMostBytes) + " bytes");
    }
    end = round_up(end, page);
  }
  group_start_[kGroups] = end;
  return end ? Status::ok() : refuse("it has nothing to load");
}

Status Loader::relocate(char* memory) {
  for (size_t i = 0; i < sections_.size(); ++i)
    if (places_[i].loaded && sections_[i].sh_type != SHT_NOBITS)
      std::memcpy(memory + places_[i].offset, object_.data() + sections_[i].sh_offset, sections_[i].sh_size);
  for (const Elf64_Shdr& section : sections_) {
    if (section.sh_type != SHT_REL && section.sh_type != SHT_RELA) continue;
    if (section.sh_info >= sections_.size()) return refuse("relocations of a section that it does not have");
    if (!places_[section.sh_info].loaded) continue;  // of debugging sections
    if (section.sh_type == SHT_REL) return refuse("it has relocations without addends");
    uint64_t count = 0;
    AICF_TRY(check_table<Elf64_Rela>(section, &count));
    for (uint64_t i = 0; i < count; ++i)
      AICF_TRY(apply(record<Elf64_Rela>(section.sh_offset, i), section.sh_info, memory));
  }
  return Status::ok();
}

Status Loader::address_of(uint64_t index, const char* memory, uint64_t* out) const {
  if (index >= symbols_.size()) return refuse("a relocation of a symbol that it does not have");
  const Elf64_Sym& symbol = symbols_[index];
  if (symbol.st_shndx == SHN_ABS) {
    *out = symbol.st_value;
    return Status::ok();
  }
  std::string name;
  AICF_TRY(name_of(symbol, &name));
  if (symbol.st_shndx == SHN_UNDEF || symbol.st_shndx == SHN_COMMON)
    return refuse("it does not define '" + name +
                  "', which it uses; a kernel calls nothing outside of itself");
  if (symbol.st_shndx >= sections_.size() || !places_[symbol.st_shndx].loaded ||
      symbol.st_value > sections_[symbol.st_shndx].sh_size)
    return refuse("the symbol '" + name + "' lies outside of its sections");
  *out = reinterpret_cast<uint64_t>(memory) + places_[symbol.st_shndx].offset + symbol.st_value;
  return Status::ok();
}

// Values as the x86-64 supplement names them: S the symbol, A the addend, P the place.
Status Loader::apply(const Elf64_Rela& relocation, size_t target, char* memory) const {
  const uint32_t type = ELF64_R_TYPE(relocation.r_info);
  if (type == R_X86_64_NONE) return Status::ok();
  const bool wide = type == R_X86_64_64 || type == R_X86_64_PC64;
  const bool relative = type == R_X86_64_PC32 || type == R_X86_64_PLT32 || type == R_X86_64_PC64;
  if (!wide && !relative && type != R_X86_64_32S)
    return refuse("a relocation of type " + std::to_string(type) + ", which is not known here");
  const uint64_t width = wide ? 8 : 4, size = sections_[target].sh_size;
  if (relocation.r_offset > size || width > size - relocation.r_offset)
    return refuse("a relocation outside of its section");
  char* place = memory + places_[target].offset + relocation.r_offset;
  uint64_t value = 0;
  AICF_TRY(address_of(ELF64_R_SYM(relocation.r_info), memory, &value));
  value += static_cast<uint64_t>(relocation.r_addend);
  if (relative) value -= reinterpret_cast<uint64_t>(place);
  const int64_t number = static_cast<int64_t>(value);
  if (!wide && number != static_cast<int32_t>(number))
    return refuse("a relocation of 32 bits cannot reach its symbol; compile with -fpic");
  std::memcpy(place, &value, width);  // both machines are little-endian
  return Status::ok();
}

Status Loader::protect(char* memory) const {
  for (int group = 0; group < kGroups; ++group) {
    const size_t size = group_start_[group + 1] - group_start_[group];
    if (size && mprotect(memory + group_start_[group], size, kProtection[group]) != 0)
      return Status::device("the system refuses memory for generated code: " + std::string(strerror(errno)));
  }
  return Status::ok();
}

void Loader::functions(char* memory, std::unordered_map<std::string, void*>* out) const {
  for (const Elf64_Sym& symbol : symbols_) {
    std::string name;
    if (ELF64_ST_TYPE(symbol.st_info) != STT_FUNC || symbol.st_shndx >= sections_.size()) continue;
    const Place& place = places_[symbol.st_shndx];
    if (!place.loaded || place.group != kText || symbol.st_value >= sections_[symbol.st_shndx].sh_size)
      continue;
    if (!name_of(symbol, &name).is_ok()) continue;
    out->emplace(name, memory + place.offset + symbol.st_value);
  }
}

}  // namespace

Status ObjectImage::load(const std::string& object, std::unique_ptr<ObjectImage>* out) {
#ifndef __x86_64__
  return Status::unsupported("generated code is loaded on x86-64 only; use the prebuilt kernels");
#endif
  Loader loader(object);
  AICF_TRY(loader.read());
  AICF_TRY(loader.lay_out());
  void* pages = mmap(nullptr, loader.bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED)
    return Status::device("out of memory: generated code needs " + std::to_string(loader.bytes()) + " bytes");
  std::unique_ptr<ObjectImage> image(new ObjectImage(pages, loader.bytes()));
  char* memory = static_cast<char*>(pages);
  AICF_TRY(loader.relocate(memory));
  AICF_TRY(loader.protect(memory));
  loader.functions(memory, &image->functions_);
  *out = std::move(image);
  return Status::ok();
}

ObjectImage::~ObjectImage() { munmap(pages_, bytes_); }

void* ObjectImage::function(const std::string& name) const {
  const auto found = functions_.find(name);
  return found == functions_.end() ? nullptr : found->second;
}

}  // namespace aicf
