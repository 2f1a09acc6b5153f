import type { Random } from '../../stress/random'

/** Tables of a random schema, with what identifies a row. Hidden columns and counts that triggers keep are left out. */
export const TABLES = {
  page: 'id, url, title, tenant, code, parent, cover, size, meta',
  visit: '*',
  mark: '*',
  note: '*',
  echo: '*',
  file: '*',
  item: '*',
  named: '*',
  seat: '*',
  link: '*',
  journal: 'id, page, word, words',
  cover: '*',
} as const

/** Roles that merge: a superuser, and an owner of most tables with column privileges on the others. */
export const KEEPER = 'random_keeper'

const ACTIONS = ['', 'on delete cascade', 'on delete set null', 'on update cascade', 'on delete set default']
const DEFERRED = ['', '', 'deferrable initially deferred', 'deferrable']

/**
 * Pages with duplicates, and tables of every kind that refer to them: by one or several columns, themselves, in cycles,
 * partitioned, without a key, over three levels of cascades, with triggers of every kind, policies and privileges.
 */
export function referringTables(random: Random): string {
  const action = (): string => random.pick(ACTIONS)
  const defer = (): string => random.pick(DEFERRED)
  const some = (sql: string): string => (random.chance(0.3) ? sql : '')
  const pages = 4 + random.int(20)
  const page = (): string => `1 + floor(random() * ${pages})::int`
  const counter = random.pick(['', 'immediate', 'deferred'])
  const keyed = random.chance(0.6)
  return `
    select setseed(${random.int(1_000) / 1_000});
    create table page (id integer generated ${random.pick(['by default', 'always'])} as identity primary key, url text not null, title text,
      tenant integer not null default 1, code text unique, parent integer references page (id) ${action()} ${defer()}, cover integer,
      visits integer not null default 0, size integer generated always as (length(url)) stored, meta json, unique (tenant, id));
    insert into page (url, title, code, meta, tenant) select chr(97 + floor(random() * ${1 + random.int(6)})::int), 'title ' || i,
      case when random() < 0.7 then 'code ' || i end, '{"b":1, "a": 2}', case when random() < ${random.pick([0, 0, 0.2])} then 2 else 1 end
      from generate_series(1, ${pages}) as i;
    update page set parent = ${page()} where random() < ${random.pick([0, 0.3])};
    create table visit (id integer, page integer ${random.pick(['', 'default 1'])} references page (id) ${action()} ${defer()}, primary key (id))
      ${random.pick(['', '', 'partition by range (id)'])};
    do $do$ begin if (select relkind from pg_class where oid = 'visit'::regclass) = 'p' then
      create table visit_1 partition of visit for values from (0) to (20); create table visit_2 partition of visit default;
    end if; end $do$;
    ${
      counter === ''
        ? ''
        : `create function counted() returns trigger language plpgsql security definer set search_path = public as $$ begin
             if tg_op <> 'INSERT' then update page set visits = visits - 1 where id = old.page; end if;
             if tg_op <> 'DELETE' then update page set visits = visits + 1 where id = new.page; end if; return null; end $$;
           create ${counter === 'deferred' ? 'constraint' : ''} trigger counted after insert or update or delete on visit
             ${counter === 'deferred' ? 'deferrable initially deferred' : ''} for each row execute function counted();`
    }
    insert into visit select i, case when random() < 0.9 then ${page()} end from generate_series(1, 40) as i;
    create table mark (member integer, page integer references page (id) ${random.pick(['', 'on delete cascade'])},
      note text, primary key (member, page));
    insert into mark select m, p, case when random() < ${random.pick([0, 0.3])} then 'n' || p end
      from generate_series(1, 3) as m, generate_series(1, ${pages}) as p where random() < 0.4;
    create table note (${keyed ? 'id serial primary key,' : ''} member integer, page integer, word text,
      foreign key (member, page) references mark (member, page) on delete cascade);
    insert into note (member, page, word) select member, page, chr(97 + floor(random() * 2)::int) from mark, generate_series(1, 2) where random() < 0.6;
    create table echo (note integer ${keyed ? 'references note (id) on delete cascade' : ''}, word text);
    ${keyed ? `insert into echo select id, word from note where random() < 0.5;` : ''}
    create table file (id serial primary key, target_id integer, target_type text);
    insert into file (target_id, target_type) select ${page()}, case when random() < 0.5 then 'page' else 'user' end from generate_series(1, 15);
    create table item (id serial primary key, tenant integer, page integer,
      foreign key (tenant, page) references page (tenant, id) ${random.pick(['', 'on delete cascade'])});
    insert into item (tenant, page) select tenant, id from page where random() < 0.5;
    create table named (id serial primary key, code text references page (code) ${random.pick(['', 'on update cascade'])});
    insert into named (code) select code from page where random() < ${random.pick([0, 0.4])};
    create table seat (page integer primary key references page (id));
    insert into seat select id from page where random() < ${random.pick([0, 0.2])};
    create table link (a integer references page (id) ${random.pick(['', 'on delete cascade'])}, b integer references page (id),
      primary key (a, b) ${some(', check (a <> b)')});
    insert into link select a, b from generate_series(1, ${pages}) as a, generate_series(1, ${pages}) as b
      where a <> b and random() < ${random.pick([0, 0, 0.1])};
    create table journal (id integer generated always as identity primary key, page integer references page (id) ${defer()}, word text default 'w',
      words text generated always as (word || '!') stored, changed integer not null default 0);
    ${some(`create function noted() returns trigger language plpgsql as $$ begin new.changed := old.changed + 1; return new; end $$;
      create trigger noted before update on journal for each row execute function noted();`)}
    insert into journal (page) select ${page()} from generate_series(1, 10);
    create table cover (id serial primary key, page integer references page (id) ${defer()});
    insert into cover (page) select ${page()} from generate_series(1, 5);
    set constraints all immediate;
    alter table page add foreign key (cover) references cover (id) ${defer()};
    update page set cover = 1 + floor(random() * 5)::int where random() < 0.3;
    set constraints all immediate;
    ${some(`create function kept() returns trigger language plpgsql as $$ begin return case when old.id % 4 = 0 then null else old end; end $$;
      create trigger kept before delete on page for each row execute function kept();`)}
    ${some(`create function kept_mark() returns trigger language plpgsql as $$ begin return case when old.page % 3 = 0 then null else old end; end $$;
      create trigger kept_mark before delete on mark for each row execute function kept_mark();`)}
    ${some(`alter table mark enable row level security; create policy own on mark using (member = 1);
      alter table visit enable row level security;`)}
    do $do$ declare one record; begin
      for one in select c.oid::regclass as name from pg_class as c where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'p') loop
        execute format('alter table %s owner to ${KEEPER}', one.name);
      end loop; end $do$;
    ${some(`alter table file owner to postgres; grant select, update (target_id) on file to ${KEEPER};
      alter table named owner to postgres; grant select, update (code) on named to ${KEEPER};`)}`
}
