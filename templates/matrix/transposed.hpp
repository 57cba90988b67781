// What lanes hold of A where its tile has a row for each k, and of B where its tile has a row for each column.
//
// Which k of how many rows of A a lane holds is on all devices which k of how many columns of B it holds. So a tile of A
// that is stored transposed is read as one of B is, and the other way round. NVIDIA's words are in another order then.

namespace mp {
namespace units {

template <class T, int Columns>
using transposed_tile_a = tile_b<T, Columns>;
template <class T, int Columns>
using transposed_tile_b = tile_a<T, Columns>;

// Of A, word 1 is of the lower rows and word 2 of the next k; of B it is word 2 that is of the other columns.
template <class T>
MPTUNE_INLINE void change_order([[maybe_unused]] part<T>& a) {
#if defined(MPTUNE_UNITS_MMA)
    if constexpr (detail::same<T, split>) {
        MPTUNE_UNROLL
        for (auto& bfloat16s : a.of) change_order(bfloat16s);
    } else if constexpr (sizeof(T) < 8) {
        const unsigned word = a.word[1];
        a.word[1] = a.word[2];
        a.word[2] = word;
    }
#endif
}

template <class T, class Tile>
MPTUNE_INLINE void load_transposed_a(part<T>& a, const Tile& tile, int row, int k, int lane) {
    load_b(a, tile, k, row, lane);
    change_order(a);
}
template <class T, class Tile>
MPTUNE_INLINE void load_transposed_b(part<T>& b, const Tile& tile, int k, int column, int lane) {
    load_a(b, tile, column, k, lane);
    change_order(b);
}

}  // namespace units
}  // namespace mp
