package penstock.compat;

/** Runs one program: its name, the bootstrap servers, and a name that is nobody else's. Its last line says what it has seen. */
public final class Main {
    public static void main(String[] args) throws Exception {
        Env env = new Env(args[1], args[2]);
        String said = switch (args[0]) {
            case "group-classic" -> Group.run(env, "classic");
            case "group-consumer" -> Group.run(env, "consumer");
            case "transactions" -> Transactions.run(env);
            case "wordcount" -> WordCount.run(env);
            case "windows" -> Windows.run(env);
            default -> throw new IllegalArgumentException("no program " + args[0]);
        };
        System.out.println(said);
        // Threads of a program that has failed are not waited for.
        System.exit(0);
    }

    private Main() {
    }
}
