package penstock.compat;

/**
 * What was read: the values of a key are 0, 1, 2, ..., so the next one expected is all that has to be known to notice any record that is missing, twice or out of
 * order.
 */
final class Seen {
    private final int[] next = new int[Env.KEYS];
    private int count;

    synchronized void take(String key, String value) {
        int k = Integer.parseInt(key);
        if (Integer.parseInt(value) != next[k]) {
            throw new IllegalStateException("key " + k + ": read " + value + ", want " + next[k]);
        }
        next[k]++;
        count++;
    }

    synchronized int count() {
        return count;
    }
}
