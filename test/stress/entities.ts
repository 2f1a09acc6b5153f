import 'reflect-metadata'
import { Column, Entity, PrimaryGeneratedColumn } from 'typeorm'
import { UniqueText } from '../../src'
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

/** Both, as what the actions see. */
export type StressEntity = StressPage | StressScoped
