package tidelog.compat;

import java.util.List;
import java.util.Map;
import java.util.Set;
import javax.security.auth.callback.Callback;
import javax.security.auth.login.AppConfigurationEntry;
import org.apache.kafka.common.security.auth.AuthenticateCallbackHandler;
import org.apache.kafka.common.security.auth.SaslExtensionsCallback;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerToken;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerTokenCallback;

/** Logs in with the token that stands in the options of the login module. */
public final class TokenLogin implements AuthenticateCallbackHandler {
    private static final long LIFETIME_MS = 3_600_000;
    private String token;

    @Override
    public void configure(
            Map<String, ?> settings, String mechanism, List<AppConfigurationEntry> logins) {
        token = (String) logins.get(0).getOptions().get("token");
    }

    @Override
    public void handle(Callback[] callbacks) {
        for (Callback callback : callbacks) {
            if (callback instanceof OAuthBearerTokenCallback asked) {
                asked.token(new Given(token, System.currentTimeMillis()));
            } else if (!(callback instanceof SaslExtensionsCallback)) {
                throw new IllegalArgumentException("not asked for: " + callback);
            }
        }
    }

    @Override
    public void close() {}

    /** The client itself looks at nothing in it. */
    private record Given(String value, long now) implements OAuthBearerToken {
        @Override
        public Set<String> scope() {
            return Set.of();
        }

        @Override
        public long lifetimeMs() {
            return now + LIFETIME_MS;
        }

        @Override
        public String principalName() {
            return "given";
        }

        @Override
        public Long startTimeMs() {
            return now;
        }
    }
}
