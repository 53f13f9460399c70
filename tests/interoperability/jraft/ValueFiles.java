import java.io.FileOutputStream;
import java.io.IOException;
import java.io.RandomAccessFile;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.nio.file.StandardCopyOption;
import java.util.Arrays;
import java.util.SortedMap;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;

import net.data.technology.jraft.ClusterConfiguration;
import net.data.technology.jraft.RaftMessageSender;
import net.data.technology.jraft.Snapshot;
import net.data.technology.jraft.StateMachine;

/**
 * Every value that was committed, by its index.
 *
 * applied          a line for each that was told, as it was told: index and value in hex. Where a
 *                  snapshot was taken over: "snapshot", its index, its bytes in hex, and then a line
 *                  for each value in it.
 * snapshot         the newest: index, term, configuration in hex, content in hex.
 * snapshot.parts   one that is being received.
 *
 * The content of a snapshot is the word "values", then lines as in applied. What begins otherwise is
 * of another make: it is kept, and stands at the head of later snapshots.
 */
final class ValueFiles implements StateMachine {
    private static final String HEAD = "values\n";
    private static final String FOREIGN = "foreign ";

    private final Path folder;
    private final FileOutputStream applied;
    private final TreeMap<Long, String> values = new TreeMap<>();
    private String foreign = ""; // in hex
    private Snapshot newest;
    private final TreeMap<Long, byte[]> contents = new TreeMap<>(); // of the newest two

    ValueFiles(String name) throws IOException {
        folder = Paths.get(name);
        Path file = folder.resolve("applied");
        if (Files.exists(file)) {
            cutTorn(file);
            for (String line : Files.readAllLines(file, StandardCharsets.US_ASCII)) {
                String[] words = line.split(" ", -1);
                if (words[0].equals("snapshot")) {
                    begin(unhex(words[2]));
                } else {
                    values.put(Long.parseLong(words[0]), words[1]);
                }
            }
        }
        applied = new FileOutputStream(file.toFile(), true);
        Path held = folder.resolve("snapshot");
        if (Files.exists(held)) {
            String[] words = Files.readString(held, StandardCharsets.US_ASCII).split(" ", -1);
            ClusterConfiguration servers = ClusterConfiguration.fromBytes(unhex(words[2]));
            hold(Long.parseLong(words[0]), Long.parseLong(words[1]), servers, unhex(words[3]));
        }
    }

    @Override
    public void start(RaftMessageSender sender) {
        // it says nothing itself
    }

    @Override
    public synchronized void commit(long index, byte[] data) {
        values.put(index, hex(data));
        write(index + " " + hex(data) + "\n");
    }

    @Override
    public void rollback(long index, byte[] data) {
        // nothing is done before the commit
    }

    @Override
    public void preCommit(long index, byte[] data) {
        // nothing is done before the commit
    }

    @Override
    public synchronized void saveSnapshotData(Snapshot snapshot, long offset, byte[] data) {
        Path parts = folder.resolve("snapshot.parts");
        try (RandomAccessFile file = new RandomAccessFile(parts.toFile(), "rw")) {
            file.setLength(offset);
            file.seek(offset);
            file.write(data);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    @Override
    public synchronized boolean applySnapshot(Snapshot snapshot) {
        try {
            byte[] content = Files.readAllBytes(folder.resolve("snapshot.parts"));
            begin(content);
            StringBuilder told = new StringBuilder();
            told.append("snapshot ").append(snapshot.getLastLogIndex()).append(' ');
            told.append(hex(content)).append('\n');
            values.forEach((index, value) -> told.append(line(index, value)));
            write(told.toString());
            keep(snapshot, content);
            return true;
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    @Override
    public synchronized int readSnapshotData(Snapshot snapshot, long offset, byte[] buffer) {
        byte[] content = contents.get(snapshot.getLastLogIndex());
        int size = (int) Math.min(buffer.length, content.length - offset);
        System.arraycopy(content, (int) offset, buffer, 0, size);
        return size;
    }

    @Override
    public synchronized Snapshot getLastSnapshot() {
        return newest;
    }

    @Override
    public synchronized CompletableFuture<Boolean> createSnapshot(Snapshot snapshot) {
        StringBuilder text = new StringBuilder(HEAD);
        if (!foreign.isEmpty()) {
            text.append(FOREIGN).append(foreign).append('\n');
        }
        SortedMap<Long, String> covered = values.headMap(snapshot.getLastLogIndex() + 1);
        covered.forEach((index, value) -> text.append(line(index, value)));
        try {
            keep(snapshot, text.toString().getBytes(StandardCharsets.US_ASCII));
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
        return CompletableFuture.completedFuture(true);
    }

    @Override
    public void exit(int code) {
        System.out.println("exit " + code);
        Runtime.getRuntime().halt(code & 0xff);
    }

    /** The state is what such a content says, and nothing else. */
    private void begin(byte[] content) {
        values.clear();
        String text = new String(content, StandardCharsets.ISO_8859_1);
        if (!text.startsWith(HEAD)) {
            foreign = hex(content);
            return;
        }
        foreign = "";
        for (String line : text.substring(HEAD.length()).split("\n")) {
            if (line.startsWith(FOREIGN)) {
                foreign = line.substring(FOREIGN.length());
            } else if (!line.isEmpty()) {
                String[] words = line.split(" ", -1);
                values.put(Long.parseLong(words[0]), words[1]);
            }
        }
    }

    /** The newest snapshot from now on: the whole file, or the one before. */
    private void keep(Snapshot snapshot, byte[] content) throws IOException {
        String text = snapshot.getLastLogIndex() + " " + snapshot.getLastLogTerm() + " "
                + hex(snapshot.getLastConfig().toBytes()) + " " + hex(content);
        Path made = folder.resolve("snapshot.new");
        Files.writeString(made, text, StandardCharsets.US_ASCII);
        Files.move(made, folder.resolve("snapshot"), StandardCopyOption.ATOMIC_MOVE);
        hold(snapshot.getLastLogIndex(), snapshot.getLastLogTerm(), snapshot.getLastConfig(), content);
    }

    /** One that is being sent is held until it has been replaced twice. */
    private void hold(long index, long term, ClusterConfiguration servers, byte[] content) {
        newest = new Snapshot(index, term, servers, content.length);
        contents.put(index, content);
        while (contents.size() > 2) {
            contents.pollFirstEntry();
        }
    }

    private void write(String text) {
        try {
            applied.write(text.getBytes(StandardCharsets.US_ASCII));
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    /** A line that a kill has left half written is told again. */
    private static void cutTorn(Path file) throws IOException {
        byte[] all = Files.readAllBytes(file);
        int end = all.length;
        while (end > 0 && all[end - 1] != '\n') {
            end--;
        }
        Files.write(file, Arrays.copyOf(all, end));
    }

    private static String line(long index, String value) {
        return index + " " + value + "\n";
    }

    private static String hex(byte[] data) {
        StringBuilder text = new StringBuilder(2 * data.length);
        for (byte one : data) {
            text.append(Character.forDigit(one >> 4 & 15, 16));
            text.append(Character.forDigit(one & 15, 16));
        }
        return text.toString();
    }

    private static byte[] unhex(String text) {
        byte[] data = new byte[text.length() / 2];
        for (int i = 0; i < data.length; i++) {
            data[i] = (byte) Integer.parseInt(text.substring(2 * i, 2 * i + 2), 16);
        }
        return data;
    }
}
