-- typeorm-unique-text: the parts of a URL, version 1. A check of the table of Url calls this function.
--
--   CONSTRAINT url_parts_check CHECK (unique_text_is_url_v1(scheme, host, port, path, query, fragment))
--
-- Each URL has one spelling, which parseUrl gives. The function refuses all others, so that one URL is not in two rows.
-- It is PL/pgSQL, because each statement that writes a row would compile a longer check anew.

CREATE FUNCTION "unique_text_is_url_v1"(scheme pg_catalog.text, host pg_catalog.text, port pg_catalog.int4,
  path pg_catalog.text, query pg_catalog.text, fragment pg_catalog.text)
RETURNS pg_catalog.bool LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $url$
-- Returns false for parts that no URL has, and true or NULL for others. In other collations than "C", a range of
-- characters is not a range.
DECLARE
  -- Percent-encoding with another spelling: digits in lower case, and unreserved characters. A hex digit remains
  -- encoded if a % before it would otherwise begin another triplet.
  triplet CONSTANT text := '%([0-9A-F][a-f]|[a-f][0-9A-Fa-f]|2[DE]|[46][7-9A-F]|5[0-9AF]|7[0-9AE])'
    || '|(?<!%[0-9A-Fa-f]?)%(3[0-9]|[46][1-6])';
BEGIN
  RETURN port BETWEEN 0 AND 65535
    -- The default is 0.
    AND CASE scheme COLLATE "C" WHEN 'http' THEN port <> 80 WHEN 'https' THEN port <> 443 ELSE false END
    AND CASE
      WHEN host COLLATE "C" ~ '^([0-9a-z-]+[.])*[a-z][0-9a-z-]*$' THEN true
      -- IPv6: as Postgres writes it, without leading zeros and without the first of the longest runs of zeros.
      -- Postgres would write some with the dots of IPv4.
      WHEN host COLLATE "C" ~ '^[[][0-9a-f:]+[]]$' THEN host COLLATE "C" ~ (
          '^[[]::([1-9a-f][0-9a-f]{0,3}|([1-9a-f][0-9a-f]{0,3}|ffff:(0|[1-9a-f][0-9a-f]{0,3}))'
          || ':(0|[1-9a-f][0-9a-f]{0,3}))[]]$')
        OR host COLLATE "C" = concat('[', host(btrim(host, '[]')::inet), ']')
      -- A host whose last label is a number is an IPv4 address, which has one spelling: 127.1 is 127.0.0.1.
      WHEN host COLLATE "C" ~ '(^|[.])([0-9]+|0x[0-9a-f]*)[.]?$' THEN host COLLATE "C" ~
        '^((25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])[.]){3}(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])$'
      ELSE host COLLATE "C" ~ '^[!"&-.0-9;=_-z{}~$]+$' END
    AND path COLLATE "C" ~ '^/[]!$-;=@-[_a-z|~]*$' AND path COLLATE "C" !~ '/[.][.]?(/|$)'
    AND query COLLATE "C" ~ '^[!$-&(-;=?-~]*$' AND fragment COLLATE "C" ~ '^[!#-;=?-_a-~]*$'
    -- A lookbehind is slow, and most parts have no %.
    AND (strpos(path COLLATE "C", '%') = 0 OR path COLLATE "C" !~ triplet)
    AND (strpos(query COLLATE "C", '%') = 0 OR query COLLATE "C" !~ triplet)
    AND (strpos(fragment COLLATE "C", '%') = 0 OR fragment COLLATE "C" !~ triplet);
END
$url$;
COMMENT ON FUNCTION "unique_text_is_url_v1"(pg_catalog.text, pg_catalog.text, pg_catalog.int4, pg_catalog.text,
  pg_catalog.text, pg_catalog.text) IS 'typeorm-unique-text: whether these are the parts of a URL in its one spelling.';
-- The check runs as whoever writes a row, whatever default privileges revoke.
GRANT EXECUTE ON FUNCTION "unique_text_is_url_v1"(pg_catalog.text, pg_catalog.text, pg_catalog.int4, pg_catalog.text,
  pg_catalog.text, pg_catalog.text) TO PUBLIC;
