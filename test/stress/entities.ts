import 'reflect-metadata'
import { Column, DeleteDateColumn, Entity, ManyToOne, PrimaryColumn, PrimaryGeneratedColumn } from 'typeorm'
import { UniqueText } from '../../src'
import { NumberWithin } from '../../src/numbers'
import { trim } from '../../src/text'
import { fewHashes } from '../support/digests'

/** Four chains serve everything. */
@Entity('stress page')
export class StressPage {
  @PrimaryGeneratedColumn('identity') id!: number
  @UniqueText({ normalize: trim(), digest: fewHashes(4) }) text!: string
  @Column({ type: 'text', nullable: true }) note!: string | null
}

/** Two hashes within each of two scopes: four chains again, and rows that move between scopes. */
@Entity('stress scoped')
export class StressScoped {
  @PrimaryGeneratedColumn('identity') id!: number
  @UniqueText({ normalize: trim(), digest: fewHashes(2), scope: ['tenant'] }) text!: string
  @Column({ type: 'integer' }) tenant!: number
  @Column({ type: 'text', nullable: true }) note!: string | null
}

/** As above, on a table that is partitioned by the scope: rows move between partitions with it. */
@Entity('stress parts')
export class StressParts {
  @PrimaryGeneratedColumn() id!: number
  @UniqueText({ normalize: trim(), digest: fewHashes(2), scope: ['tenant'] }) text!: string
  @PrimaryColumn({ type: 'integer' }) tenant!: number
  @Column({ type: 'text', nullable: true }) note!: string | null
}

/** Before TypeORM looks: it makes the columns, the index and the guard of a table that exists, and no partitions. */
export const PARTITIONED = `
  CREATE TABLE "stress parts" (id serial, text text NOT NULL, tenant integer, note text, PRIMARY KEY (id, tenant))
    PARTITION BY LIST (tenant);
  CREATE TABLE "stress part 1" PARTITION OF "stress parts" FOR VALUES IN (1);
  CREATE TABLE "stress part 2" PARTITION OF "stress parts" DEFAULT`

/** Rows that are deleted softly free their texts, and come back. */
@Entity('stress soft')
export class StressSoft {
  @PrimaryGeneratedColumn('identity') id!: number
  @UniqueText({ normalize: trim(), digest: fewHashes(4), ignoreDeleted: true }) text!: string
  @Column({ type: 'text', nullable: true }) note!: string | null
  @DeleteDateColumn() deletedAt!: Date | null
}

/** Refers to a page; a row that is deleted softly holds its text. */
@Entity('stress link')
export class StressLink {
  @PrimaryGeneratedColumn('identity') id!: number
  @UniqueText({ digest: fewHashes(4) }) text!: string
  @ManyToOne(() => StressPage, { nullable: true, cascade: true, onDelete: 'CASCADE' }) page!: StressPage | null
  @DeleteDateColumn() deletedAt!: Date | null
}

/** Rows that are numbered and counted within one of four scopes. */
@Entity('stress numbered')
export class StressNumbered {
  @PrimaryGeneratedColumn('identity') id!: number
  @Column({ type: 'integer' }) tenant!: number
  @NumberWithin({ scope: ['tenant'], count: true }) number!: number
  @DeleteDateColumn() deletedAt!: Date | null
}

/** Work that ran for a token of `once`. */
@Entity('stress run')
export class StressRun {
  @PrimaryGeneratedColumn('identity') id!: number
  @Column({ type: 'text' }) token!: string
  @Column({ type: 'integer' }) client!: number
}

/** All that every action writes to, as what it sees. */
export type StressEntity = StressPage | StressScoped | StressParts | StressSoft
