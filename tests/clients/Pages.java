import java.net.HttpURLConnection;
import java.net.InetSocketAddress;
import java.net.ProxySelector;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse.BodyHandlers;
import java.security.cert.X509Certificate;
import javax.net.ssl.HttpsURLConnection;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLEngine;
import javax.net.ssl.TrustManager;
import javax.net.ssl.X509ExtendedTrustManager;

/** Fetches URLs one after the other: java Pages.java HttpClient|URLConnection URL... */
class Pages {
    public static void main(String[] arguments) throws Exception {
        var proxy = URI.create(System.getenv("https_proxy"));
        var trust = SSLContext.getInstance("TLS");
        trust.init(null, new TrustManager[] {new Anybody()}, null);
        var urls = java.util.Arrays.asList(arguments).subList(1, arguments.length);
        if (arguments[0].equals("HttpClient")) {
            var way = ProxySelector.of(new InetSocketAddress(proxy.getHost(), proxy.getPort()));
            var client = HttpClient.newBuilder().proxy(way).sslContext(trust).build();
            for (var url : urls) {
                client.send(HttpRequest.newBuilder(URI.create(url)).build(), BodyHandlers.discarding());
            }
        } else {
            HttpsURLConnection.setDefaultSSLSocketFactory(trust.getSocketFactory());
            HttpsURLConnection.setDefaultHostnameVerifier((name, session) -> true);
            var address = new InetSocketAddress(proxy.getHost(), proxy.getPort());
            var way = new java.net.Proxy(java.net.Proxy.Type.HTTP, address);
            for (var url : urls) {
                var connection = (HttpURLConnection) URI.create(url).toURL().openConnection(way);
                connection.getInputStream().readAllBytes();
            }
        }
    }

    static class Anybody extends X509ExtendedTrustManager {
        public void checkClientTrusted(X509Certificate[] chain, String kind) {}
        public void checkServerTrusted(X509Certificate[] chain, String kind) {}
        public void checkClientTrusted(X509Certificate[] chain, String kind, java.net.Socket socket) {}
        public void checkServerTrusted(X509Certificate[] chain, String kind, java.net.Socket socket) {}
        public void checkClientTrusted(X509Certificate[] chain, String kind, SSLEngine engine) {}
        public void checkServerTrusted(X509Certificate[] chain, String kind, SSLEngine engine) {}
        public X509Certificate[] getAcceptedIssuers() {
            return new X509Certificate[0];
        }
    }
}
