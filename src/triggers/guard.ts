import { literal, quote } from '../sql/identifier'
import { OF_TABLE, SQLSTATE } from '../sql/sqlstate'
import {
  differentScope,
  differentText,
  equal,
  EQUALS,
  hashExpression,
  isFreed,
  isLive,
  joinOf,
  op,
  sameChain,
  sameScope,
  sameText,
  textIsNull,
  type TextTable,
} from '../sql/text-table'
import {
  type Firing,
  kernelFunction,
  type Trigger,
  type TriggerFunction,
  type TriggerNote,
  triggerOn,
  type TriggerSet,
  triggerSet,
} from '../sql/trigger-set'

/** The version in the note. A change that makes an installed guard wrong raises it, as docs/upgrading.md explains. */
const PROTOCOL_VERSION = 1

/** Returns the guard that a text should have. maintainers/protocol.md describes each part of it. */
export const guardOf = (table: TextTable): TriggerSet =>
  triggerSet({
    kind: 'guard',
    name: table.name,
    table: { schema: table.schema, name: table.table },
    docs: 'maintainers/protocol.md',
    functions: [
      {
        name: table.guard,
        body: placeBody(table),
        says: 'makes hashes, and gives number 0 in an empty chain.',
      },
    ],
    kernel: guardKernel,
    triggers: (schema) => guardTriggers({ ...table, schema }),
    note: {
      protocol: PROTOCOL_VERSION,
      digest: table.digest.name,
      ...Object.fromEntries(
        NOTED.filter((key) => JSON.stringify(table[key]) !== JSON.stringify(Reflect.get(DEFAULTS, key))).map((key) => [
          key,
          table[key],
        ]),
      ),
    },
  })

/** Returns the guard of a text in a list, which is empty for a text without a guard. */
export const guardsOf = (table: TextTable): TriggerSet[] => (table.guardless === true ? [] : [guardOf(table)])

/** The parts of a declaration in the note: those that the rows depend on, and those that the guard enforces. */
const NOTED = [
  'text',
  'normalizers',
  'scope',
  'deleted',
  'nullable',
  'immutable',
  'maxChainLength',
  'hash',
  'number',
  'chained',
  'index',
  'check',
] as const

/** The guard's note. It helps to find drift that the catalog hides, to follow renamed columns and to restore rows. */
export interface GuardNote extends TriggerNote, Pick<TextTable, 'name' | (typeof NOTED)[number]> {
  readonly kind: 'guard'
  /** The name of the digest. */
  readonly digest: string
}

/** The values that a note omits. */
const DEFAULTS = { scope: [], nullable: false, immutable: false } as const

/** Returns undefined if the note is that of another set, or if its version does not serve this one. */
export const asGuardNote = (note: TriggerNote): GuardNote | undefined => {
  const { kind, protocol, serves = protocol } = note
  const isReadable = serves <= PROTOCOL_VERSION && PROTOCOL_VERSION <= protocol
  return kind === 'guard' && isReadable ? { ...DEFAULTS, ...(note as GuardNote) } : undefined
}

/** The quoted columns of the row that the function assigns to. */
const columnsOf = (table: TextTable): Record<'hash' | 'number' | 'chained', string> => ({
  hash: quote(table.hash),
  number: quote(table.number),
  chained: quote(table.chained),
})

/** `IF … THEN`, one predicate a line. */
const when = (...predicates: readonly string[]): string => `\n  IF ${predicates.join('\n    AND ')} THEN`

/**
 * The body of the function that runs BEFORE INSERT OR UPDATE, which suffices for practically every row. If the chain is
 * not empty, it sets the number to −1, which the check would refuse. The kernel then finds the number.
 *
 * The kernel finds all numbers in a partition, in a shard and after a rename, because this query names the table.
 */
function placeBody(table: TextTable): string {
  const { hash, number, chained } = columnsOf(table)
  const withoutText = `${when(...textIsNull(table, 'NEW'))}
    NEW.${hash} := NULL;
    NEW.${number} := 0;
    NEW.${chained} := false;
    RETURN NEW;
  END IF;`
  // A softly deleted row is in no chain. When it is restored, it gets a number that is free then.
  const withoutChain = `${when(...isFreed(table, 'NEW'))}
    NEW.${number} := 0;
    RETURN NEW;
  END IF;`
  return `
DECLARE
  plain boolean := ${equal('TG_TABLE_NAME', literal(table.table))} AND pg_catalog.pg_table_is_visible(TG_RELID);
  taken boolean;
BEGIN${refuseOtherOwner(literal(table.index), 'plain')}${keepUnchanged(table)}${table.nullable ? withoutText : ''}
${makeHash(table)}
  NEW.${number} := -1;
  NEW.${chained} := false;${table.deleted === undefined ? '' : withoutChain}
  IF plain THEN
    -- Of a text that stands at 0, the index raises the ordinary violation.
    SELECT ${[equal(`t.${number}`, '0'), ...sameText(table, 't', 'NEW')].join('\n      AND ')} INTO taken
      FROM ONLY ${quote(table.table)} AS t
      WHERE ${[...sameChain(table, 't', 'NEW'), ...isLive(table, 't')].join('\n        AND ')}
      LIMIT 1;
    IF NOT FOUND OR taken AND ${equal('TG_OP', "'INSERT'")} THEN
      NEW.${number} := 0;
    END IF;
  END IF;
  RETURN NEW;
END
`
}

/** Makes the hash, or only checks it if the hash has already decided which partition or shard holds the row. */
function makeHash(table: TextTable): string {
  const hash = columnsOf(table).hash
  const made = hashExpression(table, 'NEW', '\n    ')
  if (table.spread === undefined) return `  NEW.${hash} := ${made};`
  return `  IF (${equal(`NEW.${hash}`, made)}) IS NOT TRUE THEN
    RAISE EXCEPTION USING ERRCODE = '${SQLSTATE.checkViolation}', MESSAGE = 'the hash is not that of the text',
      HINT = ${literal(`The table is spread by ${quote(table.hash)}: send it, made of the text as the check has it.`)},
      CONSTRAINT = ${literal(table.check)}, ${OF_TABLE};
  END IF;`
}

/** An unchanged text keeps its number, unless a promotion sets the number to 0. No UPDATE clears the flag. */
function keepUnchanged(table: TextTable): string {
  const { hash, number, chained } = columnsOf(table)
  const same = [...sameScope(table, 'OLD', 'NEW'), ...sameText(table, 'OLD', 'NEW')]
  if (table.deleted !== undefined) same.push(`(${[...isLive(table, 'OLD'), ...isFreed(table, 'NEW')].join(' OR ')})`)
  return `${when(equal('TG_OP', "'UPDATE'"), ...same)}
    NEW.${hash} := OLD.${hash};
    NEW.${number} := CASE WHEN ${equal(`NEW.${number}`, '0')} THEN 0 ELSE OLD.${number} END;
    NEW.${chained} := OLD.${chained} OR NEW.${chained} IS TRUE;
    RETURN NEW;
  END IF;${table.immutable ? refuseChange(table) : ''}`
}

/** Refuses a change of an immutable text or of its scope. A text that was NULL may still be set. */
function refuseChange(table: TextTable): string {
  const given = table.nullable ? [`NOT (${textIsNull(table, 'OLD').join(' AND ')})`] : []
  const different = [...differentText(table, 'OLD', 'NEW'), ...differentScope(table, 'OLD', 'NEW')]
  // Without soft deletes, an unchanged row has returned before this.
  const changed = table.deleted === undefined ? [] : [`(${different.join(`\n      OR `)})`]
  return `${when(equal('TG_OP', "'UPDATE'"), ...given, ...changed)}
    RAISE EXCEPTION USING ERRCODE = '${SQLSTATE.immutableText}', MESSAGE = 'the text is immutable',
      CONSTRAINT = ${literal(table.index)}, ${OF_TABLE};
  END IF;`
}

/** Returns the six triggers in the order of their creation. maintainers/protocol.md gives the purpose of each. */
function guardTriggers(table: TextTable): Trigger[] {
  const { hash, number, chained } = columnsOf(table)
  const { text, scope, deleted } = table
  const freed = deleted === undefined ? [] : [deleted]
  // `rest` names the columns in this order. The kernel reads them from that trigger, so they may be renamed.
  const columns = [...text.map(({ name }) => name), ...scope, table.hash, table.number, table.chained, ...freed]
  // A softly deleted row is restored, and holds its text again.
  const restored = [...isFreed(table, 'OLD'), ...isLive(table, 'NEW')].join(' AND ')
  const moved = [
    ...differentText(table, 'OLD', 'NEW'),
    ...differentScope(table, 'OLD', 'NEW'),
    `(${equal(`OLD.${hash}`, `NEW.${hash}`)}) IS NOT TRUE`,
    `(${equal(`OLD.${number}`, `NEW.${number}`)}) IS NOT TRUE`,
    `OLD.${chained} AND NEW.${chained} IS NOT TRUE`,
    ...(deleted === undefined ? [] : [restored]),
  ]
  const beyond = `${op('>')} 0`
  const named = { time: 'BEFORE', columns } as const
  // AFTER, because with a BEFORE trigger an UPDATE of several rows of a chain would meet rows that its own trigger has
  // changed, and always fail with 27000.
  const settle = (event: 'insert' | 'update' | 'delete', when: readonly string[]): Trigger =>
    trigger(table, `settle_${event}`, { ...inKernel(table), time: 'AFTER', events: [event], when })
  return [
    // If the client sends the hash and number 0, no function runs: check and index decide. A flagged anchor is a copy
    // (COPY, a move between partitions or nodes), and others of its chain may have been copied before it.
    trigger(table, 'place_insert', {
      time: 'BEFORE',
      events: ['insert'],
      when: [`NEW.${hash} IS NULL`, `(${equal(`NEW.${number}`, '0')}) IS NOT TRUE`, `NEW.${chained}`],
      runs: table.guard,
    }),
    // The trigger names columns, so that other UPDATEs do not prepare its condition. The check reads the text at each.
    trigger(table, 'place_update', { ...named, events: ['update'], when: moved, runs: table.guard }),
    trigger(table, 'rest', {
      ...named,
      ...inKernel(table, table.maxChainLength),
      events: ['insert', 'update'],
      when: [`NEW.${number} ${op('<')} 0`],
    }),
    settle('insert', [`NEW.${number} ${beyond}`]),
    // This trigger names no columns, because a user's BEFORE trigger may change some that the statement does not name.
    settle('update', [`OLD.${chained}`, `NEW.${chained}`, `NEW.${number} ${beyond}`]),
    // Only a DELETE of an anchor that has or had other rows in its chain runs the function.
    settle('delete', [`OLD.${chained}`]),
  ]
}

/** The name of a trigger. Triggers of one event fire in the order of their names: `rest` fires after `place_…`. */
const triggerName = (table: Pick<TextTable, 'guard'>, suffix: string): string => `${table.guard}_${suffix}`

const trigger = (table: TextTable, suffix: string, firing: Omit<Firing, 'name'>): Trigger =>
  triggerOn({ schema: table.schema, name: table.table }, { ...firing, name: triggerName(table, suffix) })

/** Returns the function of the kernel, with the arguments that it needs. */
function inKernel(table: TextTable, ...more: readonly number[]): Pick<Firing, 'runs' | 'args'> {
  const { text, scope, index } = table
  return { runs: KERNEL, args: [triggerName(table, 'rest'), text.length, scope.length, index, ...more].map(String) }
}

/** The function that all texts of a schema share. It runs only for a collision, so a text needs no plans of its own. */
export const KERNEL = 'unique_text_chain_v1'

/** The number of times that a reader looks for the anchor. More are needed only if others keep removing it. */
const PLACE_ROUNDS = 16

const DOCS = 'maintainers/protocol.md'

/**
 * Refuses a trigger on the table of another role, which may be a trap: casts of its types and triggers of that table
 * would run as the function's owner. The query reads the owner of the table's row type, which is the same, because
 * Citus hides shards from queries of pg_class on their node.
 *
 * @param index the constraint of the error, as SQL
 * @param unless a condition, as SQL, under which the query is not needed. It is separate from the query, because the
 * executor would otherwise start the query for each row (8 µs)
 */
const refuseOtherOwner = (index: string, unless?: string): string => `
  ${unless === undefined ? 'IF' : `IF ${unless} THEN\n  ELSIF`} NOT EXISTS (SELECT FROM pg_catalog.pg_type AS y
    WHERE y.oid ${EQUALS} pg_catalog.format('%I.%I', TG_TABLE_SCHEMA, TG_TABLE_NAME)::pg_catalog.regtype
      AND pg_catalog.pg_get_userbyid(y.typowner) ${EQUALS} CURRENT_USER) THEN
    RAISE EXCEPTION USING ERRCODE = '${SQLSTATE.wrongState}', MESSAGE =
        'the guard does not belong to the owner of the table: a new migration creates it again',
      CONSTRAINT = ${index}, ${OF_TABLE};
  END IF;`

/** A condition that is false for a trigger that only an old snapshot shows: pg_get_triggerdef uses no snapshot. */
const STANDS = 'pg_catalog.pg_get_triggerdef(g.oid) IS NOT NULL'

/**
 * Makes three conditions for each pair of rows: both are in one chain, both hold one text, and the left one is live.
 *
 * The function acts on the table that the trigger is on, which may be renamed, or a partition, or a shard. It uses the
 * current names of columns, because the queries are parsed with those: at REPEATABLE READ, pg_attribute has the
 * names of the snapshot. If the guard is newer than the snapshot, the snapshot may hide new numbers.
 */
const CONDITIONS = `${refuseOtherOwner('TG_ARGV[3]')}
  SELECT pg_catalog.array_agg(a.object_names[3]::pg_catalog.name ORDER BY k.i) INTO names
    FROM pg_catalog.pg_trigger AS g
    ${joinOf('pg_proc', 'f', 'g.tgfoid')}
    CROSS JOIN LATERAL pg_catalog.unnest(g.tgattr) WITH ORDINALITY AS k (attnum, i)
    CROSS JOIN LATERAL pg_catalog.pg_identify_object_as_address(
      'pg_catalog.pg_class'::pg_catalog.regclass, g.tgrelid, k.attnum) AS a
    -- By what it is given: on a shard, a trigger has another name. That of another role does not count.
    WHERE g.tgrelid ${EQUALS} TG_RELID AND f.proname ${EQUALS} '${KERNEL}'
      AND pg_catalog.pg_get_userbyid(f.proowner) ${EQUALS} CURRENT_USER
      AND pg_catalog.starts_with(pg_catalog.encode(g.tgargs, 'hex'), pg_catalog.encode(
        pg_catalog.convert_to(TG_ARGV[0], 'UTF8'), 'hex') ${op('||')} '00')
      AND ${STANDS};
  IF names IS NULL AND NOT EXISTS (SELECT FROM pg_catalog.pg_trigger AS g
    WHERE g.tgrelid ${EQUALS} TG_RELID AND g.tgname ${EQUALS} TG_NAME
      AND ${STANDS}) THEN
    RAISE EXCEPTION USING ERRCODE = '${SQLSTATE.serializationFailure}',
      MESSAGE = 'the guard is newer than the snapshot of the transaction',
      CONSTRAINT = TG_ARGV[3], ${OF_TABLE};
  ELSIF names IS NULL THEN
    RAISE EXCEPTION USING ERRCODE = '${SQLSTATE.wrongState}',
      MESSAGE = pg_catalog.format('the guard has lost its trigger %s', TG_ARGV[0]),
      HINT = 'Something was renamed: create the guard again, for instance by a new migration.',
      CONSTRAINT = TG_ARGV[3], ${OF_TABLE};
  END IF;
  number := names[fixed ${op('+')} 2];
  chained := names[fixed ${op('+')} 3];
  SELECT pg_catalog.array_agg(c.predicate ORDER BY p.i), pg_catalog.array_agg(x.predicate ORDER BY p.i),
      pg_catalog.array_agg(CASE WHEN names[fixed ${op('+')} 4] IS NULL THEN 'true'
        ELSE pg_catalog.format('%s.%I IS NULL', p.l, names[fixed ${op('+')} 4]) END ORDER BY p.i)
    INTO chains, same, live
    FROM (VALUES
      (1, 't', '($1)'), (2, 's', '($1)'), (3, 't', 's'), (4, '($2)', '($1)'), (5, '($1)', '($2)')) AS p (i, l, r)
    CROSS JOIN LATERAL (
      SELECT pg_catalog.string_agg(
          pg_catalog.format('%1$s.%2$I ${EQUALS} %3$s.%2$I', p.l, n, p.r), ' AND ')
        FROM pg_catalog.unnest(names[texts ${op('+')} 1 : fixed ${op('+')} 1]) AS n
    ) AS c (predicate)
    CROSS JOIN LATERAL (
      SELECT pg_catalog.string_agg(pg_catalog.format('(%1$s.%2$I%4$s ${EQUALS} %3$s.%2$I%4$s
          OR %1$s.%2$I IS NULL AND %3$s.%2$I IS NULL)',
          p.l, n, p.r, '::pg_catalog.text COLLATE pg_catalog."C"'), ' AND ')
        FROM pg_catalog.unnest(names[1 : texts]) AS n
    ) AS x (predicate);`

interface Refusal {
  readonly sqlstate: string
  /** An expression, as SQL. */
  readonly message: string
  readonly hint?: string
}

/** Raises an error that names our index as its constraint, so that a client recognizes it. It never holds the text. */
const raise = (indent: number, { sqlstate, message, hint }: Refusal): string =>
  [
    `RAISE EXCEPTION USING ERRCODE = '${sqlstate}',`,
    `  MESSAGE = ${message},`,
    ...(hint === undefined ? [] : [`  HINT = '${hint}',`]),
    `  CONSTRAINT = TG_ARGV[3], ${OF_TABLE};`,
  ]
    .map((line) => `\n${' '.repeat(indent)}${line}`)
    .join('')

/**
 * Runs BEFORE INSERT OR UPDATE, and finds the number in a chain that is not empty.
 *
 * Every query takes a new snapshot at READ COMMITTED because the function is VOLATILE. The second read, after the lock,
 * depends on it. At REPEATABLE READ the lock raises 40001 if the anchor has changed since the snapshot.
 */
const PLACE = `
    IF TG_OP ${EQUALS} 'UPDATE' THEN
      -- An upsert that sets the text would do this to a row of another text that took its number meanwhile.
      EXECUTE pg_catalog.format('SELECT %s AND %s', chains[4], live[4]) INTO met USING NEW, OLD;
      IF met THEN${raise(8, {
        sqlstate: SQLSTATE.serializationFailure,
        message: `'a text cannot become another one of equal hash in place'`,
        hint: 'An upsert met the row of another text: try again. An UPDATE: store the text as a new row.',
      })}
      END IF;
      -- A row that goes to another partition is in its chain there. With -1 it meets the INSERT triggers of that one.
      EXECUTE pg_catalog.format('SELECT NOT (%s) FROM (SELECT ($1).*) AS t',
        coalesce(pg_catalog.pg_get_partition_constraintdef(TG_RELID), 'true')) INTO met USING NEW;
      IF met THEN
        RETURN NEW;
      END IF;
    END IF;
    FOR round IN 1..${PLACE_ROUNDS} LOOP
      -- Once without the lock and, unless that is enough, once more under it: a new query has a new snapshot, which
      -- shows all that earlier holders of the lock have committed, and nobody can add more.
      EXECUTE pg_catalog.format('SELECT pg_catalog.min(t.%1$I), pg_catalog.max(t.%1$I), pg_catalog.count(*),
          pg_catalog.min(t.%1$I) FILTER (WHERE %2$s)
        FROM %3$s AS t WHERE %4$s AND %5$s', number, same[1], own, chains[1], live[1])
        INTO first, last, length, taken USING NEW;
      IF locked AND taken IS NULL AND length ${op('>=')} TG_ARGV[4]::pg_catalog.int4 THEN${raise(8, {
        sqlstate: SQLSTATE.chainLimit,
        message: `pg_catalog.format('the chain is full: %s texts share one hash', TG_ARGV[4])`,
      })}
      ELSIF locked THEN
        RETURN pg_catalog.jsonb_populate_record(NEW,
          pg_catalog.jsonb_build_object(number, coalesce(taken, last ${op('+')} 1)));
      ELSIF last IS NULL OR taken ${EQUALS} 0 OR first ${op('>')} 0 THEN
        -- Empty, or taken at 0: the index decides, and knows no snapshots. Others but no anchor: this very statement
        -- took the anchor, and a lock would wait for ever. Settle compares what gets 0.
        RETURN pg_catalog.jsonb_populate_record(NEW, pg_catalog.jsonb_build_object(number, coalesce(taken, 0),
          chained, (first ${op('>')} 0) IS TRUE));
      END IF;
      -- The anchor is the mutex of the chain; at REPEATABLE READ this fails where it has changed since the snapshot.
      EXECUTE pg_catalog.format('SELECT FROM %s AS t WHERE %s AND %s AND t.%I ${EQUALS} 0
        FOR NO KEY UPDATE', own, chains[1], live[1], number) USING NEW;
      GET DIAGNOSTICS length = ROW_COUNT;
      locked := length ${op('>')} 0;
    END LOOP;${raise(4, {
      sqlstate: SQLSTATE.serializationFailure,
      message: `'could not lock the anchor of a chain due to concurrent deletes'`,
    })}`

/**
 * Runs AFTER INSERT, UPDATE or DELETE on a chain that has or had rows besides its anchor. It touches the anchor, or
 * promotes the lowest row if there is no anchor. Then it checks what the chain really holds.
 */
const SETTLE = `
  IF TG_OP ${EQUALS} 'INSERT' THEN
    EXECUTE pg_catalog.format('SELECT %s', live[5]) INTO comes USING NEW;
  ELSIF TG_OP ${EQUALS} 'DELETE' THEN
    EXECUTE pg_catalog.format('SELECT ($1).%I ${EQUALS} 0 AND %s', number, live[5]) INTO leaves USING OLD;
  ELSE
    -- A promotion: the row was the anchor of a chain, and is not any more. A touch: the row has come to a number that
    -- is not 0, or what its chain stands on has changed.
    EXECUTE pg_catalog.format('SELECT o.anchor AND o.flag AND o.live AND (s.chain IS NOT TRUE OR NOT n.live),
        n.live AND (n.later AND NOT s.number
          OR (n.later OR n.flag) AND (s.text IS NOT TRUE OR s.chain IS NOT TRUE OR NOT o.live)
          OR o.flag AND NOT n.flag AND s.chain AND o.live)
      FROM (SELECT %3$s, ($1).%1$I ${EQUALS} 0, ($1).%2$I) AS o (live, anchor, flag),
        (SELECT %4$s, ($2).%1$I ${op('>')} 0, ($2).%2$I) AS n (live, later, flag),
        (SELECT %5$s, %6$s, ($1).%1$I ${EQUALS} ($2).%1$I) AS s (chain, text, number)',
      number, chained, live[5], live[4], chains[5], same[5]) INTO leaves, comes USING OLD, NEW;
  END IF;
  FOR way IN 1..2 LOOP
    IF way ${EQUALS} 1 THEN
      CONTINUE WHEN leaves IS NOT TRUE;
      r := OLD;
    ELSE
      CONTINUE WHEN comes IS NOT TRUE;
      r := NEW;
    END IF;
    EXECUTE pg_catalog.format('SELECT t.%1$I FROM %2$s AS t WHERE %3$s AND %4$s ORDER BY t.%1$I LIMIT 1
      FOR NO KEY UPDATE', number, own, chains[1], live[1]) INTO lowest USING r;
    IF lowest IS NULL THEN
      CONTINUE;
    ELSIF lowest ${EQUALS} 0 THEN
      -- Also where it is true: on the new version fail, with 40001, transactions with an older snapshot, in place of
      -- acting on that. A lock would leave no trace.
      EXECUTE pg_catalog.format('UPDATE %s AS t SET %I = true WHERE %s AND %s AND t.%I ${EQUALS} 0',
        own, chained, chains[1], live[1], number) USING r;
    ELSE
      EXECUTE pg_catalog.format('UPDATE %s AS t SET %I = 0, %I = true
        WHERE %s AND %s AND t.%I ${EQUALS} $2', own, number, chained, chains[1], live[1], number)
        USING r, lowest;
    END IF;
    GET DIAGNOSTICS done = ROW_COUNT;
    -- The row was locked and there: only a trigger of the table can have undone this.
    EXECUTE pg_catalog.format('SELECT EXISTS (
      SELECT FROM %s AS t WHERE %s AND %s AND t.%I ${EQUALS} 0 AND t.%I)',
      own, chains[1], live[1], number, chained) INTO stands USING r;
    IF done ${EQUALS} 0 OR NOT stands THEN${raise(6, {
      sqlstate: SQLSTATE.wrongState,
      message: `'a trigger of the table undoes what the guard does to a chain'`,
      hint: 'The trigger must keep hash, hash number and flag as they are, and let their UPDATE pass.',
    })}
    END IF;
    -- What is promoted was proved when it came; equal texts from a time without the guard must not keep each other from
    -- being deleted.
    CONTINUE WHEN way ${EQUALS} 1 AND lowest ${op('>')} 0;
    -- This statement may have put a text at 0 past every proof; a trigger may have changed a text after the proof.
    -- Compared by number: an old snapshot can show two rows at one number, of which one is gone.
    EXECUTE pg_catalog.format('SELECT EXISTS (SELECT FROM %1$s AS s JOIN %1$s AS t
        ON %2$s AND %3$s AND t.%4$I ${op('<>')} s.%4$I AND %5$s
      WHERE %6$s AND %7$s AND s.%4$I ${EQUALS} ANY (ARRAY[0, ($1).%4$I]))',
      own, chains[3], live[3], number, same[3], chains[2], live[2]) INTO stands USING r;
    IF stands THEN${raise(6, {
      sqlstate: SQLSTATE.uniqueViolation,
      message: `pg_catalog.format('duplicate key value violates unique constraint %I', TG_ARGV[3])`,
      hint: 'The text, or another of its hash, is stored twice: run the doctor.',
    })}
    END IF;
  END LOOP;
  RETURN NULL;`

const CHAIN = `
#variable_conflict use_variable
DECLARE
  -- Arguments: a trigger on the columns of text, scope, hash, number, flag and delete date, whatever they are called;
  -- how many are of the text, and of the scope; the index; BEFORE: the longest chain.
  texts CONSTANT integer := TG_ARGV[1];
  fixed CONSTANT integer := texts ${op('+')} TG_ARGV[2]::pg_catalog.int4;
  -- Rows of children by INHERITS are no rows of the table.
  own CONSTANT pg_catalog.text := pg_catalog.format('ONLY %s', TG_RELID::pg_catalog.regclass);
  names pg_catalog.name[];
  number pg_catalog.name;
  chained pg_catalog.name;
  chains pg_catalog.text[];
  same pg_catalog.text[];
  live pg_catalog.text[];
  locked boolean := false;
  met boolean;
  first integer;
  last integer;
  taken integer;
  length bigint;
  leaves boolean := false;
  comes boolean := false;
  stands boolean;
  lowest integer;
  done integer;
  r pg_catalog.record;
BEGIN${CONDITIONS}
  IF TG_WHEN ${EQUALS} 'BEFORE' THEN${PLACE}
  END IF;${SETTLE}
END
`

/** The function that each schema has once, for all of its texts. */
export const guardKernel: readonly TriggerFunction[] = [kernelFunction(KERNEL, DOCS, CHAIN)]
