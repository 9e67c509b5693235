BEGIN TRANSACTION;
CREATE TABLE games (
	id INTEGER NOT NULL, 
	tournament_id INTEGER NOT NULL, 
	number INTEGER NOT NULL, 
	uuid VARCHAR NOT NULL, 
	seed BIGINT NOT NULL, 
	turns INTEGER NOT NULL, 
	finished BOOLEAN NOT NULL, 
	replay VARCHAR, 
	played DATETIME NOT NULL, 
	PRIMARY KEY (id), 
	UNIQUE (tournament_id, number), 
	FOREIGN KEY(tournament_id) REFERENCES tournaments (id)
);
INSERT INTO "games" VALUES(1,1,0,'33e9a969-eb9d-4684-928d-57991042cbd9',894933081445914327,4,1,NULL,'2026-11-27 12:38:02.101603');
INSERT INTO "games" VALUES(2,1,1,'2d8731b1-4363-4a99-aa6f-c1394d7185e4',894933081445914327,4,0,NULL,'2026-11-27 12:38:02.123922');
CREATE TABLE league_snakes (
	id INTEGER NOT NULL, 
	league VARCHAR NOT NULL, 
	snake VARCHAR NOT NULL, 
	benched BOOLEAN NOT NULL, 
	rests_until DATETIME, 
	failures INTEGER NOT NULL, 
	why VARCHAR NOT NULL, 
	PRIMARY KEY (id), 
	UNIQUE (league, snake)
);
INSERT INTO "league_snakes" VALUES(1,'Club','hungry',0,'2026-11-27 12:00:00',2,'no answer');
CREATE TABLE seats (
	id INTEGER NOT NULL, 
	game_id INTEGER NOT NULL, 
	seat INTEGER NOT NULL, 
	snake VARCHAR NOT NULL, 
	won BOOLEAN NOT NULL, 
	cause VARCHAR NOT NULL, 
	killer INTEGER, 
	eliminated_on INTEGER NOT NULL, 
	length INTEGER NOT NULL, 
	latencies JSON NOT NULL, 
	problems JSON NOT NULL, 
	opening VARCHAR NOT NULL, 
	PRIMARY KEY (id), 
	UNIQUE (game_id, seat), 
	FOREIGN KEY(game_id) REFERENCES games (id)
);
INSERT INTO "seats" VALUES(1,1,0,'minimax@5',0,'head-collision',1,4,4,'[0.161, 0.138, 0.086, 0.076]','{}','uuuu');
INSERT INTO "seats" VALUES(2,1,1,'hungry',0,'head-collision',0,4,4,'[0.788, 0.295, 0.227, 0.294]','{}','uldr');
INSERT INTO "seats" VALUES(3,2,0,'hungry',0,'',NULL,0,4,'[0.394, 0.265, 0.24, 0.163]','{}','ldru');
INSERT INTO "seats" VALUES(4,2,1,'minimax@5',0,'',NULL,0,4,'[0.123, 0.077, 0.076, 0.067]','{}','uldd');
CREATE TABLE tournaments (
	id INTEGER NOT NULL, 
	created DATETIME NOT NULL, 
	setup JSON NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "tournaments" VALUES(1,'2026-11-27 12:38:02.055928','{"snakes": ["minimax@5", "hungry"], "per_game": 2, "width": 7, "height": 7, "ruleset": "standard", "map": "standard", "settings": {"food_spawn_chance": 15, "minimum_food": 1, "hazard_damage_per_turn": 14, "shrink_every_n_turns": 25}, "seed": 1, "timeout": 500, "max_turns": 4, "positions": 5}');
CREATE INDEX ix_games_uuid ON games (uuid);
CREATE INDEX ix_games_played ON games (played);
CREATE INDEX ix_seats_snake ON seats (snake);
COMMIT;
