import java.io.IOException;
import java.util.concurrent.ScheduledThreadPoolExecutor;

import net.data.technology.jraft.RaftConsensus;
import net.data.technology.jraft.RaftContext;
import net.data.technology.jraft.RaftParameters;
import net.data.technology.jraft.extensions.FileBasedServerStateManager;
import net.data.technology.jraft.extensions.Log4jLoggerFactory;
import net.data.technology.jraft.extensions.RpcTcpClientFactory;
import net.data.technology.jraft.extensions.RpcTcpListener;

/**
 * A JRaft server with its log in files and its own TCP carrier, for tests.
 *
 * Words: folder (with config.properties and cluster.json), port, election timeout from and to,
 * heartbeat (ms), entries between snapshots, bytes of a block of one, entries in a pack of a log.
 * It ends when its input does, so that it does not outlive who started it.
 */
public final class ValueServer {
    private static final int THREADS = 8;
    private static final int APPEND_ENTRIES = 100;
    private static final int STOP_GAP = 5;

    private ValueServer() {
    }

    public static void main(String[] words) throws IOException {
        String folder = words[0];
        int[] numbers = new int[words.length];
        for (int i = 1; i < words.length; i++) {
            numbers[i] = Integer.parseInt(words[i]);
        }
        RaftParameters parameters = new RaftParameters()
                .withElectionTimeoutLower(numbers[2])
                .withElectionTimeoutUpper(numbers[3])
                .withHeartbeatInterval(numbers[4])
                .withRpcFailureBackoff(numbers[4] / 2)
                .withMaximumAppendingSize(APPEND_ENTRIES)
                .withLogSyncStoppingGap(STOP_GAP)
                .withSnapshotEnabled(numbers[5])
                .withSyncSnapshotBlockSize(numbers[6])
                .withLogSyncBatchSize(numbers[7]);
        ScheduledThreadPoolExecutor threads = new ScheduledThreadPoolExecutor(THREADS);
        RaftConsensus.run(new RaftContext(
                new FileBasedServerStateManager(folder),
                new ValueFiles(folder),
                parameters,
                new RpcTcpListener(numbers[1], threads),
                new Log4jLoggerFactory(),
                new RpcTcpClientFactory(threads),
                threads));
        while (System.in.read() >= 0) {
            // whoever started it lives
        }
        Runtime.getRuntime().halt(0);
    }
}
