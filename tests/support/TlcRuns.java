import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.File;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;

/**
 * Runs TLC once for each line of standard input: a folder and TLC's arguments, separated by tabs. Answers with the
 * length of what TLC printed, and with that. Each run has classes of its own, because TLC keeps its state in static
 * fields. Run by `java TlcRuns.java tla2tools.jar`; tests/support/tlc.py does.
 */
public class TlcRuns {
    public static void main(String[] arguments) throws Exception {
        URL[] jar = {new File(arguments[0]).toURI().toURL()};
        PrintStream answers = System.out;
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = lines.readLine()) != null; ) {
            ByteArrayOutputStream printed = new ByteArrayOutputStream();
            try (URLClassLoader classes = new URLClassLoader(jar, ClassLoader.getPlatformClassLoader())) {
                run(classes, line.split("\t"), new PrintStream(printed, true, StandardCharsets.UTF_8));
            }
            answers.println(printed.size());
            printed.writeTo(answers);
            answers.flush();
        }
        System.exit(0); // TLC leaves threads behind
    }

    private static void run(ClassLoader classes, String[] words, PrintStream out) throws Exception {
        Thread.currentThread().setContextClassLoader(classes);
        System.setOut(out);
        System.setErr(out);
        Class<?> console = classes.loadClass("util.ToolIO");
        console.getField("out").set(null, out);
        console.getField("err").set(null, out);
        console.getMethod("setUserDir", String.class).invoke(null, words[0] + File.separator);
        Class<?> type = classes.loadClass("tlc2.TLC");
        Object tlc = type.getConstructor().newInstance();
        Object files = classes.loadClass("util.SimpleFilenameToStream").getConstructor(String.class).newInstance(words[0]);
        try {
            Object own = Arrays.copyOfRange(words, 1, words.length);
            if ((Boolean) type.getMethod("handleParameters", String[].class).invoke(tlc, own)) {
                type.getMethod("setResolver", classes.loadClass("util.FilenameToStream")).invoke(tlc, files);
                type.getMethod("process").invoke(tlc);
            }
        } catch (InvocationTargetException error) {
            error.getCause().printStackTrace(out);
        }
    }
}
